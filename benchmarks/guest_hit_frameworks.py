"""Hits of Triton, torch.compile and JAX, for `guest_hit_child.py`. Each compiles for itself, and has a folder of its own."""

from __future__ import annotations

import importlib.util
import os
from functools import partial
from pathlib import Path
from typing import Any

from guest_hit_child import PROGRAMS, Measured, Missing, Pairs, fill, module

_TRITON = """
import triton, triton.language as tl
@triton.jit
def softmax_of_sums(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    s = tl.load(x + i, mask=i < n, other=0.0) + tl.load(y + i, mask=i < n, other=0.0)
    e = tl.exp(s - tl.max(s, axis=0))
    tl.store(y + i, e / tl.sum(e, axis=0), mask=i < n)
"""
_MANAGER = "kernelkeep.guests.triton:KernelkeepCacheManager"


def triton(do: str, folder: Path, measured: Measured) -> None:
    """A kernel that no process of the machine has to compile, as Triton's own `compile` returns it."""
    os.environ["TRITON_CACHE_DIR"] = str(folder / "theirs")
    path = folder / "kernels.py"
    if not path.exists():
        path.write_text(_TRITON)
    library, compiler = module("triton"), module("triton.compiler")
    target = module("triton.backends.compiler").GPUTarget("cuda", 90, 32)
    kernels = _imported(path, "kernels")
    compiled: list[bool] = []
    library.knobs.compilation.listener = lambda **facts: compiled.append(not facts["cache_hit"])

    def compile_kernel(ours: bool, block: int) -> Any:
        _choose(ours)
        signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "B": "constexpr"}
        return library.compile(compiler.ASTSource(kernels.softmax_of_sums, signature, {"B": block}), target=target)

    blocks = [16 << number for number in range(PROGRAMS + 1)]
    programs = [(partial(compile_kernel, False, b), partial(compile_kernel, True, b)) for b in blocks]
    launches = _launches(path, blocks)
    if do == "fill":
        fill(programs)
        fill(launches)
        return
    measured.turns("Triton: a kernel from the cache, by triton.compile", programs)
    if launches:
        measured.turns("Triton: a kernel from the cache, to its first result", launches)
    assert not any(compiled), "a hit was expected, and it was compiled"


def _choose(ours: bool) -> None:
    os.environ.pop("TRITON_CACHE_MANAGER", None)
    if ours:
        os.environ["TRITON_CACHE_MANAGER"] = _MANAGER


def _imported(path: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def _launches(path: Path, blocks: list[int]) -> Pairs:
    """First launches on a GPU; none where there is no GPU. Each side has functions of its own, which have nothing loaded."""
    try:
        torch = module("torch")
        if not torch.cuda.is_available():
            return []
    except ImportError:
        return []
    kernels = {ours: _imported(path, f"kernels_{ours}") for ours in (False, True)}
    x = torch.ones(8192, device="cuda")

    def launch(ours: bool, block: int) -> Any:
        _choose(ours)
        y = torch.ones(8192, device="cuda")
        # A size that is no multiple of 16 is specialised in another way than those above are compiled.
        kernels[ours].softmax_of_sums[(1,)](x, y, 7, B=block)
        return y.cpu()

    return [(partial(launch, False, b), partial(launch, True, b)) for b in blocks]


def inductor(do: str, folder: Path, measured: Measured) -> None:
    """A function that `torch.compile` finds in its caches of graphs."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "theirs")
    torch = module("torch")
    module("kernelkeep.guests.inductor").turn_on(local=True)
    inductor_config, functorch_config = module("torch._inductor.config"), module("torch._functorch.config")
    x = torch.linspace(-1, 1, 4096).reshape(64, 64)

    def work(number: int, x: Any) -> Any:
        y = torch.nn.functional.gelu(x @ x.T) * (number + 1)
        return torch.softmax(y + torch.sin(x), dim=-1)

    def call(local: bool, remote: bool, number: int) -> Any:
        torch._dynamo.reset()
        with (
            inductor_config.patch(fx_graph_cache=local, fx_graph_remote_cache=remote),
            functorch_config.patch(enable_autograd_cache=local, enable_remote_autograd_cache=remote),
        ):
            return torch.compile(work)(number, x)

    numbers = range(2)  # the first one warms up
    if do == "fill":
        for number in numbers:
            call(True, True, number)  # one compile fills both
        return
    counters = module("torch._dynamo.utils").counters
    counters.clear()
    for _ in range(8):
        pairs = [(partial(call, True, False, n), partial(call, False, True, n)) for n in numbers]
        measured.turns("torch.compile: a function from the cache, to its first result", pairs)
    assert not counters["inductor"]["fxgraph_cache_miss"], "a hit was expected, and it was compiled"
    _graphs(folder, measured)


def _graphs(folder: Path, measured: Measured) -> None:
    """One level below: a graph's bytes, found, decoded and unpickled."""
    codecache, remote_cache = module("torch._inductor.codecache"), module("torch._inductor.remote_cache")
    keys = sorted(path.name for path in (folder / "theirs" / "fxgraph").glob("*/*"))
    candidates = getattr(codecache.FxGraphCache, "iterate_over_candidates", None)
    if candidates is None or not keys:
        raise Missing("this version of PyTorch finds its graphs in another way, so they are measured in calls alone")
    cache = remote_cache.RemoteFxGraphCache("fx-graph-v1")

    def find(local: bool, key: str) -> Any:
        (found, *_), *_ = candidates(local, None if local else cache, key)
        return found

    for _ in range(200):
        pairs = [(partial(find, True, key), partial(find, False, key)) for key in keys]
        measured.turns("torch.compile: a graph, decoded and unpickled", pairs)
        for key in keys:
            measured.add("bytes of a graph", "ours", partial(cache.backend.get, cache._get_key(key)))


def jax(do: str, folder: Path, measured: Measured) -> None:
    """A program from JAX's persistent cache, to what can be called; and the cache's `get` alone."""
    library, cache, numpy = module("jax"), module("jax._src.compilation_cache"), module("jax.numpy")
    module("kernelkeep.guests.jax").turn_on()
    theirs = module("jax._src.lru_cache").LRUCache(str(folder / "theirs"), max_size=-1)
    kept = {"theirs": theirs, "ours": cache._cache}
    x = numpy.linspace(-1.0, 1.0, 4096).reshape(64, 64)

    def lowered(number: int) -> Any:
        def work(x: Any) -> Any:
            return library.nn.softmax(library.nn.gelu(x @ x.T) * (number + 1) + numpy.sin(x))

        library.clear_caches()
        return library.jit(work).lower(x)

    def compile_with(who: str, program: Any) -> Any:
        cache._cache = kept[who]
        return program.compile()

    events: list[str] = []
    library.monitoring.register_event_listener(lambda event, **more: events.append(event))
    rounds = range(1 if do == "fill" else 4)
    for _ in rounds:
        for number in range(PROGRAMS + 1):
            for who in ("theirs", "ours") if number % 2 else ("ours", "theirs"):
                hit = partial(compile_with, who, lowered(number))
                measured.add("JAX: a program from the cache, loaded", who, hit, keep=do != "fill" and number > 0)
    if do == "fill":
        return
    hits, expected = events.count("/jax/compilation_cache/cache_hits"), 2 * (PROGRAMS + 1) * len(rounds)
    assert hits >= expected, f"{expected} hits were expected, and there were {hits}"
    keys = sorted(path.name.removesuffix("-cache") for path in (folder / "theirs").glob("jit_work-*-cache"))
    for _ in range(20):
        pairs = [(partial(kept["theirs"].get, key), partial(kept["ours"].get, key)) for key in keys]
        measured.turns("JAX: a program's bytes, about 5 KB", pairs)
