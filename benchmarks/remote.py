"""Shared stores against compiling, and against moving the same bytes by hand.

    python benchmarks/remote.py [section …] [--device opencl|cuda] [--json]      sections: hit preload gone signature store

- *hit*: a program that this machine never saw, from a shared store to the first result, against compiling it. Each round is a new
  process with an empty cache folder and the driver's own caches empty. Importing, opening the device and the first connection
  are left out; the first hit of a process, with the connection, has a row of its own.
- *preload*: 200 programs in one batch. The bytes alone, fetched and verified, and the whole `preload`, with every program
  written to disk and loaded by the driver; against `redis-cli` and `curl` writing the same bytes to a file, and against the
  same preload from disk.
- *gone*: 20 programs in a new process, compiled by a device that takes 20 ms for each, with a store whose server is gone:
  what it costs more than a server that is there and has nothing. Loading the client's library is in both.
- *signature*: opening a signed entry.
- *store*: one lookup, one write and one lease, without a cache around them. The simulation of a fleet takes these times.

Servers are started here: redis-server and nginx with WebDAV. Where they are not installed, a folder and a small HTTP server in
Python take their places, and the table says so. All of them are on this machine: there is no network in these figures.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import kernelkeep as kk
from common import chosen_devices, chosen_sections, long_run, row, show
from kernelkeep.processes import python_environment
from kernelkeep.remote.address import open_store
from kernelkeep.testing.servers import NginxServer, NotInstalled, RedisServer, Server, free_port

SECRET = b"the secret of the benchmark"
PROGRAMS, BATCH, ROUNDS = 10, 200, 5 if long_run() else 3
N = 1024


def kernel(number: int) -> kk.PortableKernel:
    body = (
        "int i = kk_global_id(0); if (i < n) { float s = 0.0f; "
        f"for (int j = 0; j < 8; j++) s += x[(i + j * {number + 1}) % n] * {number}.25f; y[i] = a * s + y[i]; }}"
    )
    params: list[kk.Buffer | kk.Scalar] = [
        kk.Buffer("x", "f4", "r"),
        kk.Buffer("y", "f4", "rw"),
        kk.Scalar("a", "f4"),
        kk.Scalar("n", "i4"),
    ]
    return kk.PortableKernel(f"work{number}", params=params, body=body)


# --- places


class Place(NamedTuple):
    """A store that a server, or a folder, of this machine keeps."""

    name: str
    url: str
    server: Server | None = None


HTTP_SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version, kept, wbufsize, disable_nagle_algorithm = "HTTP/1.1", {}, 1 << 20, True
    def answer(self, status, body=b""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if self.command != "HEAD" else b"")
    def do_GET(self):
        found = self.kept.get(self.path)
        self.answer(404) if found is None else self.answer(200, found)
    do_HEAD = do_GET
    def do_PUT(self):
        self.kept[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(201)
    def log_message(self, *_):
        return
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@contextlib.contextmanager
def places() -> Iterator[list[Place]]:
    """The stores of this machine."""
    with contextlib.ExitStack() as stack:
        found: list[Place] = []
        for name, start in (("Redis", RedisServer), ("nginx", NginxServer)):
            try:
                server: Server = stack.enter_context(start())
                found.append(Place(name, server.url, server))  # type: ignore[attr-defined]
            except NotInstalled as missing:
                print(f"{name} is left out: {missing}", file=sys.stderr)
        if len(found) < 2:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            found.append(Place("a folder", f"file://{folder}"))
            port = free_port()
            process = subprocess.Popen([sys.executable, "-c", HTTP_SERVER, str(port)])
            stack.callback(process.wait)
            stack.callback(process.kill)
            _wait_for(port)
            found.append(Place("http.server, in Python", f"http://127.0.0.1:{port}"))
        yield [place for place in found if _is_supported(place)]


def _is_supported(place: Place) -> bool:
    try:
        open_store(remote_of(place.url, "any")).close()
    except kk.Unsupported as missing:
        print(f"{place.name} is left out: {missing}", file=sys.stderr)
        return False
    return True


def _wait_for(port: int) -> None:
    for _ in range(200):
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
            return
        time.sleep(0.05)


def remote_of(url: str, namespace: str, timeout_seconds: float = 10.0) -> kk.Remote:
    return kk.Remote(url, namespace=namespace, timeout_seconds=timeout_seconds, signing_key=SECRET)


# --- children: processes that have seen nothing, each prints a line of JSON


def run_child(who: str, *arguments: object, cold: Path | None = None) -> dict[str, Any]:
    variables = python_environment(dict(os.environ))
    if cold is not None:
        cold.mkdir(parents=True, exist_ok=True)
        variables |= {"POCL_CACHE_DIR": str(cold), "XDG_CACHE_HOME": str(cold), "CUDA_CACHE_DISABLE": "1"}
    command = [sys.executable, __file__, "--child", who, *map(str, arguments)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{who} failed:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def run_kernel(device: Any, lease: kk.Lease, x: Any) -> None:
    y = device.array(np.ones(N, "f4"))
    lease.kernel().launch(N // 256, (x, y, np.float32(2), np.int32(N)))
    y.numpy()


def child_get(spec: str, folder: str, url: str, namespace: str) -> None:
    """Milliseconds to the first result of each program. The first program, number 99, is not among them."""
    device = kk.open_device(spec, cache_dir=folder)
    remote = [remote_of(url, namespace)] if url else []
    times, origins = [], []
    with kk.ProgramCache(device, folder, remote=remote) as cache:
        x = device.array(np.linspace(0, 1, N, dtype="f4"))
        for number in (99, *range(PROGRAMS)):
            source = kernel(number).source(device)
            start = time.perf_counter()
            with cache.get(source) as lease:
                run_kernel(device, lease, x)
            times.append((time.perf_counter() - start) * 1e3)
            origins.append(lease.origin)
        first, *others = times
        print(json.dumps({"first": first, "ms": statistics.median(others), "origins": origins}))


def child_fill(spec: str, folder: str, count: str) -> None:
    """Compile programs into a folder."""
    device = kk.open_device(spec, cache_dir=folder)
    with kk.ProgramCache(device, folder, max_programs=1000, remote=[]) as cache:
        x = device.array(np.linspace(0, 1, N, dtype="f4"))
        report = cache.preload([kernel(number) for number in (*range(int(count)), 999)])
        assert not report.failed, report
        for number in (*range(int(count)), 999):  # some drivers finish compiling at the first launch
            with cache.get(kernel(number)) as lease:
                run_kernel(device, lease, x)
    print("{}")


def child_preload(spec: str, folder: str, url: str, namespace: str, filled: str) -> None:
    """The batch alone, and the whole preload. Program 999 makes the connection first."""
    from kernelkeep.cache.tiers.remote import RemoteTier
    from kernelkeep.remote.signing import keys_for

    device = kk.open_device(spec, cache_dir=folder)
    remote = remote_of(url, namespace)
    fresh = [kernel(number).source(device) for number in range(BATCH)]
    if filled:  # what was compiled before goes into the store
        tier = RemoteTier(remote, keys_for(remote), device.fingerprint.digest)
        with kk.ProgramCache(device, filled, remote=[]) as cache:
            for digest in cache.disk.scan():
                tier.put(digest, cache.disk.get(digest) or b"")
        tier.close()
    with kk.ProgramCache(device, folder, max_programs=1000, remote=[remote]) as cache:
        cache.get(kernel(999).source(device)).release()
        wanted = [(cache.identify(source)[1], source.name, ()) for source in fresh]
        start = time.perf_counter()
        cache.chain.prefetch(wanted)
        batch = (time.perf_counter() - start) * 1e3
        cache.chain.forget_prefetched()
        start = time.perf_counter()
        report = cache.preload(fresh)
        whole = (time.perf_counter() - start) * 1e3
        assert report.remote == BATCH, report
        names = [f"{device.fingerprint.digest}/{digest}" for digest, *_ in wanted]
        entries = sum(len(cache.disk.get(digest) or b"") for digest, *_ in wanted)
    print(json.dumps({"batch": batch, "ms": whole, "names": names, "bytes": entries}))


def child_disk(spec: str, folder: str) -> None:
    """The same programs from disk."""
    device = kk.open_device(spec, cache_dir=folder)
    fresh = [kernel(number).source(device) for number in range(BATCH)]
    with kk.ProgramCache(device, folder, max_programs=1000, remote=[]) as cache:
        cache.get(kernel(999).source(device)).release()
        start = time.perf_counter()
        report = cache.preload(fresh)
        seconds = time.perf_counter() - start
        assert report.disk == BATCH, report
    print(json.dumps({"ms": seconds * 1e3}))


def child_gone(folder: str, url: str, namespace: str) -> None:
    """Twenty programs of a fake device, with a store that does not answer."""
    import warnings

    from kernelkeep.testing import FakeDevice

    warnings.simplefilter("ignore")
    with FakeDevice() as device:
        sources = [kernel(number).source(device) for number in range(20)]
        kk.ProgramCache  # noqa: B018 (import it now)
        remote = [kk.Remote(url, namespace=namespace, signing_key=SECRET)] if url else []
        start = time.perf_counter()
        cache = kk.ProgramCache(device, folder, remote=remote)
        for source in sources:
            cache.get(source).release()
        print(json.dumps({"ms": (time.perf_counter() - start) * 1e3}), flush=True)
        os._exit(0)


CHILDREN: dict[str, Callable[..., None]] = {
    "get": child_get,
    "fill": child_fill,
    "preload": child_preload,
    "disk": child_disk,
    "gone": child_gone,
}


# --- sections


def section_hit(rows: list[list[Any]]) -> None:
    for info in chosen_devices():
        with tempfile.TemporaryDirectory() as name, places() as stores:
            folder = Path(name)
            for place in stores:
                run_child("get", info.spec, folder / "fill" / place.name, place.url, "hit", cold=folder / "fill-caches")
            compiling: list[float] = []
            hits: dict[str, list[dict[str, Any]]] = {place.name: [] for place in stores}
            for number in range(ROUNDS):  # they take turns
                own = folder / str(number)
                compiling.append(run_child("get", info.spec, own / "c", "", "", cold=own / "caches")["ms"])
                for place in stores:
                    found = run_child("get", info.spec, own / place.name, place.url, "hit", cold=own / place.name / "d")
                    assert set(found["origins"]) == {"remote"}, found
                    hits[place.name].append(found)
            what = f"one program to its first result, {info.spec} {info.name}"
            compile_ms = statistics.median(compiling)
            rows.append([what, "compiling", compile_ms, "ms", 1.0, ""])
            for place in stores:
                ms = statistics.median(found["ms"] for found in hits[place.name])
                first = statistics.median(found["first"] for found in hits[place.name])
                rows.append([what, f"remote hit, {place.name}", ms, "ms", compile_ms / ms, "≥ 20"])
                work = f"remote hit to the first result, {place.name}"
                row(work, ms, "ms", peer="compiling", its=compile_ms, goal="≥ 20", device=info)
                rows.append(
                    [what, f"the first one, with the connection, {place.name}", first, "ms", compile_ms / first, ""]
                )


def section_preload(rows: list[list[Any]]) -> None:
    for info in chosen_devices():
        with tempfile.TemporaryDirectory() as name, places() as stores:
            folder = Path(name)
            run_child("fill", info.spec, folder / "filled", BATCH, cold=folder / "fill-caches")
            for place in stores:
                batches, wholes, disks, transfers = [], [], [], []
                for number in range(ROUNDS):
                    filled = folder / "filled" if number == 0 else ""
                    own = folder / place.name / str(number)
                    done = run_child("preload", info.spec, own, place.url, "preload", filled, cold=own / "caches")
                    batches.append(done["batch"])
                    wholes.append(done["ms"])
                    disks.append(run_child("disk", info.spec, own, cold=own / "more-caches")["ms"])
                    transfers.append(_transfer(place, done["names"], folder / "bytes"))
                by = {"Redis": "redis-cli MGET", "nginx": "curl"}.get(
                    place.name, "reading the files" if place.url.startswith("file") else "curl"
                )
                what = f"{BATCH} programs, {done['bytes'] / 1e6:.1f} MB, {info.spec} {info.name}, {place.name}"
                transfer = statistics.median(transfers)
                batch, whole = statistics.median(batches), statistics.median(wholes)
                rows.append([what, f"their bytes by {by}", transfer, "ms", 1.0, ""])
                goal = "" if place.url.startswith("file") else "≤ 2"
                rows.append([what, "one batch, fetched and verified", batch, "ms", batch / transfer, goal])
                row(f"{what}, one batch, fetched and verified", batch, "ms", peer=by, its=transfer, goal=goal)
                rows.append([what, "the whole preload, loaded by the driver", whole, "ms", whole / transfer, ""])
                disk = statistics.median(disks)
                rows.append([what, "the same preload from disk", disk, "ms", disk / transfer, ""])


def _transfer(place: Place, names: list[str], to: Path) -> float:
    """Milliseconds of moving the stored bytes by hand."""
    if place.url.startswith("redis"):
        keys = [f"kernelkeep:preload:programs/{name}" for name in names]
        command = ["redis-cli", "-u", place.url, "MGET", *keys]
    elif place.url.startswith("http"):
        urls = [f"{place.url}/preload/programs/{name}" for name in names]
        command = ["curl", "--silent", "--fail", *(part for url in urls for part in ("-o", str(to), url))]
    else:
        start = time.perf_counter()
        root = Path(place.url.removeprefix("file://"))
        assert all((root / "preload" / "programs" / name).read_bytes() for name in names)
        return (time.perf_counter() - start) * 1e3
    commands = [command, [*command[:1], "--parallel", *command[1:]]] if command[0] == "curl" else [command]
    times = []
    for one in commands:  # the faster way counts
        with to.open("wb") as output:
            start = time.perf_counter()
            subprocess.run(one, stdout=output, stderr=subprocess.DEVNULL, check=True)
            times.append((time.perf_counter() - start) * 1e3)
    return min(times)


def section_gone(rows: list[list[Any]]) -> None:
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        gone: dict[str, dict[str, str]] = {}  # by what is there and empty: what is gone
        try:
            paused, there = stack.enter_context(RedisServer()), stack.enter_context(RedisServer())
            paused.pause()
            gone[there.url] = {
                "Redis, paused: it takes connections and does not answer": paused.url,
                "Redis, nobody listens": f"redis://127.0.0.1:{free_port()}/0",
                "Redis, an address that does not exist": "redis://10.255.255.1:6379/0",
            }
        except NotInstalled as missing:
            print(f"Redis is left out: {missing}", file=sys.stderr)
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        try:
            there_too, paused_too = stack.enter_context(NginxServer()), stack.enter_context(NginxServer())
            paused_too.pause()
            gone[there_too.url] = {
                "nginx, paused": paused_too.url,
                "nginx, nobody listens": f"http://127.0.0.1:{free_port()}",
            }
        except NotInstalled as missing:
            print(f"nginx is left out: {missing}", file=sys.stderr)
            gone[f"file://{folder}"] = {"http://, nobody listens": f"http://127.0.0.1:{free_port()}"}
        times: dict[str, list[float]] = {
            url: [] for url in ("", *gone, *(u for urls in gone.values() for u in urls.values()))
        }
        for number in range(ROUNDS + 2):
            for turn, (url, taken) in enumerate(times.items()):
                taken.append(run_child("gone", f"{name}/{number}/{turn}", url, f"round{number}")["ms"])
        median = {url: statistics.median(taken) for url, taken in times.items()}
        what = "20 programs of 20 ms, new process"
        rows.append([what, "no store", median[""], "ms", 0.0, ""])
        for there_url, urls in gone.items():
            scheme = there_url.partition("://")[0]
            more = median[there_url] - median[""]
            rows.append(
                [what, f"{scheme}://, there and empty (compared with no store)", median[there_url], "ms", more, ""]
            )
            for who, url in urls.items():
                rows.append([what, who, median[url], "ms", median[url] - median[there_url], "≤ 100"])


def section_signature(rows: list[list[Any]]) -> None:
    from kernelkeep.remote.keys import PrivateKey
    from kernelkeep.remote.signing import make_keys

    with tempfile.TemporaryDirectory() as name:
        os.environ["KERNELKEEP_KEYS_DIR"] = name
        path = Path(name) / "signing.pem"
        path.write_bytes(PrivateKey.generate().pem())
        path.chmod(0o600)
        for algorithm, given in (("HMAC-SHA256", SECRET), ("Ed25519", path)):
            keys = make_keys(given)
            for size in (1_000, 20_000, 1_000_000):
                data = np.random.default_rng(1).bytes(size)
                sealed = keys.seal("program", "name", data)
                times = []
                for _ in range(300):
                    start = time.perf_counter()
                    keys.open("program", "name", sealed)
                    times.append((time.perf_counter() - start) * 1e6)
                start = time.perf_counter()
                hashlib.sha256(data).digest()
                hashing = (time.perf_counter() - start) * 1e6
                goal = "≤ 100" if size <= 20_000 else ""
                what = f"opening a signed entry of {size / 1000:g} kB"
                rows.append([what, algorithm, statistics.median(times), "µs", hashing, goal])
                row(f"{what}, {algorithm}", statistics.median(times), "µs", goal=goal)


def section_store(rows: list[list[Any]]) -> None:
    data = os.urandom(20_000)
    with places() as stores:
        for place in stores:
            store = open_store(remote_of(place.url, "store"))
            store.put("there", data)

            def lease(store: Any = store) -> None:
                held = store.lease("leases/x")
                assert held.attempt() is None
                held.release()

            work: dict[str, Callable[[], Any]] = {
                "a lookup that hits, 20 kB": partial(store.get, "there"),
                "a lookup that misses": partial(store.get, "not there"),
                "a write of 20 kB": partial(store.put, "other", data),
            }
            if store.lease("leases/x") is not None:
                work["taking and releasing a lease"] = lease
            for what, call in work.items():
                times = []
                for _ in range(300):
                    start = time.perf_counter()
                    call()
                    times.append((time.perf_counter() - start) * 1e6)
                times.sort()
                rows.append([what, place.name, times[len(times) // 2], "µs", times[int(len(times) * 0.99)], "(p99)"])
            store.close()


SECTIONS: dict[str, tuple[Callable[[list[list[Any]]], None], str]] = {
    "hit": (section_hit, "times faster than compiling"),
    "preload": (section_preload, "÷ the transfer"),
    "gone": (section_gone, "ms more than a server that is there"),
    "signature": (section_signature, "of it SHA-256, µs"),
    "store": (section_store, "99th percentile, µs"),
}


def main() -> None:
    if "--child" in sys.argv:
        who, *arguments = sys.argv[sys.argv.index("--child") + 1 :]
        CHILDREN[who](*arguments)
        return
    for name in chosen_sections(SECTIONS):
        section, compared = SECTIONS[name]
        rows: list[list[Any]] = []
        section(rows)
        show(f"Shared stores: {name}", ["what", "who", "figure", "unit", compared, "goal"], rows)


if __name__ == "__main__":
    main()
