"""Settings of the whole process that are changed for a moment."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

import pytest

from kernelkeep.platforms import system
from kernelkeep.resident.quick_switches import _Changed, _not_collecting, _short_turns, no_collections, quick_switches
from kernelkeep.testing import run_python


def test_the_last_block_sets_them_back() -> None:
    before = sys.getswitchinterval()
    with quick_switches(), no_collections():
        with quick_switches(), no_collections():
            pass
        assert not gc.isenabled() and sys.getswitchinterval() < before
    assert gc.isenabled() and sys.getswitchinterval() == before


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_interruption_leaves_no_setting_changed(monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    def interrupted(setting: _Changed) -> Callable[[], None]:
        change = setting._change

        def interrupt() -> None:
            if after:
                change()
            raise KeyboardInterrupt

        return interrupt

    before = sys.getswitchinterval()
    for setting, block in ((_short_turns, quick_switches), (_not_collecting, no_collections)):
        with monkeypatch.context() as patch:
            patch.setattr(setting, "_change", interrupted(setting))
            with pytest.raises(KeyboardInterrupt), block():
                pytest.fail("the block must not run")
        assert gc.isenabled() and sys.getswitchinterval() == before
        with block(), block():
            assert setting._inside == 2
        assert gc.isenabled() and sys.getswitchinterval() == before and not setting._inside


_FORKS = """
import gc, os, sys, threading
from kernelkeep.resident.quick_switches import no_collections, quick_switches

before, is_inside, may_leave = sys.getswitchinterval(), threading.Event(), threading.Event()

def stay():
    with quick_switches(), no_collections():
        is_inside.set()
        may_leave.wait()

def is_usual():
    return gc.isenabled() and sys.getswitchinterval() == before

thread = threading.Thread(target=stay)
thread.start()
is_inside.wait()
with quick_switches(), no_collections():  # a thread that forks may be inside, too
    child = os.fork()
    seen = [is_usual()]
if not child:
    with quick_switches(), no_collections():
        seen.append(not gc.isenabled() and sys.getswitchinterval() < before)
    seen.append(is_usual())
    os._exit(0 if all(seen) else 3)
may_leave.set()
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), is_usual())
"""


@pytest.mark.skipif(not system.HAS_FORKS, reason="no process forks here")
def test_a_forked_child_has_the_usual_settings() -> None:
    assert run_python(_FORKS).stdout.split() == ["0", "True"]
