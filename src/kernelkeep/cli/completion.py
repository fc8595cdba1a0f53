"""`kernelkeep completion SHELL`: the lines that make a shell complete this command.

Each script hands the words typed so far to `kernelkeep --complete`, which answers with a candidate and what it means in each line
(`candidates.py`). A line `:files` or `:folders` asks the shell for its own.
"""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import ArgumentError
from .common import AsJson, CacheDir, DeviceSpec, print_json

# Bash takes ":" and "=" for the end of a word, and puts its answer behind the last of them. So the words are taken from the line
# itself, and what stands before the last of the two is cut off the answers.
_BASH = r"""
_kernelkeep() {
    local line=${COMP_LINE:0:COMP_POINT} words=() word cut answer folder
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    word=${words[-1]}
    cut=${word%"${word##*[:=]}"}
    COMPREPLY=()
    while IFS= read -r answer; do
        case $answer in
            :files | :folders)
                [[ $answer == :folders ]] && folder=-d || folder=-f
                compopt -o filenames
                while IFS= read -r answer; do COMPREPLY+=("$answer"); done < <(compgen $folder -- "${word#"$cut"}") ;;
            *) COMPREPLY+=("${answer#"$cut"}") ;;
        esac
    done < <("${words[0]}" --complete "${words[@]:1}" 2>/dev/null | cut -f 1)
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
}
complete -F _kernelkeep kernelkeep
"""
_ZSH = r"""
#compdef kernelkeep
_kernelkeep() {
    local answer candidates=()
    for answer in "${(@f)$("${words[1]}" --complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        case $answer in
            :files) _files ;;
            :folders) _files -/ ;;
            ?*) candidates+=("${${answer%%$'\t'*}//:/\\:}:${answer#*$'\t'}") ;;
        esac
    done
    (( ${#candidates} )) && _describe -V 'kernelkeep' candidates
}
compdef _kernelkeep kernelkeep
"""
_FISH = r"""
function __kernelkeep_complete
    set -l words (commandline -opc) (commandline -ct)
    for answer in (command $words[1] --complete $words[2..-1] 2>/dev/null)
        switch $answer
            case :files
                __fish_complete_path (commandline -ct)
            case :folders
                __fish_complete_directories (commandline -ct) ''
            case '*'
                echo $answer
        end
    end
end
complete -c kernelkeep -f -k -a '(__kernelkeep_complete)'
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
    cache_dir: CacheDir = None,
    device: DeviceSpec = None,
    as_json: AsJson = False,
) -> None:
    """Print what makes a shell complete commands, options, devices, programs and files.

    For bash, add this line to ~/.bashrc: eval "$(kernelkeep completion bash)"

    For zsh, add this line to ~/.zshrc, below compinit: eval "$(kernelkeep completion zsh)"

    For fish, run this once: kernelkeep completion fish > ~/.config/fish/completions/kernelkeep.fish
    """
    if shell not in SCRIPTS:
        raise ArgumentError(f"SHELL must be {', '.join(list(SCRIPTS)[:-1])} or {list(SCRIPTS)[-1]}, got {shell!r}")
    script = SCRIPTS[shell].strip()
    if as_json:
        print_json({"shell": shell, "script": script})
    else:
        print(script)
