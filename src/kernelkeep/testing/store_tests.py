"""`StoreTests`: what every store does, ours or yours.

    class TestMine(StoreTests):
        def make_store(self, folder, namespace):
            return MyStore(...)

`make_store` opens a store on the same place each time it is called in a test, and on an empty one in each test.
"""

from __future__ import annotations

import threading
import uuid
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from ..remote.store import Store

__all__ = ["StoreTests"]

MakeStore = Callable[[], Store]
T = TypeVar("T")


def _at_once(count: int, work: Callable[[int], T]) -> list[T]:
    """`work` of 0, 1, … in as many threads, which begin together."""
    start = threading.Barrier(count)

    def run(number: int) -> T:
        start.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


class StoreTests:
    """The conformance suite of stores. Subclass it and say how to make one."""

    lists = True  # whether names can be listed
    many = 1001  # names to list; object stores list 1,000 at a time

    @abstractmethod
    def make_store(self, folder: Path, namespace: str) -> Store:
        """A store on the place that belongs to `folder`, an empty folder of the test, or to `namespace`, a name of its own."""

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> MakeStore:
        """Makes a store."""
        namespace = f"test-{uuid.uuid4().hex}"
        return lambda: self.make_store(tmp_path, namespace)

    @pytest.fixture
    def store(self, open_store: MakeStore) -> Store:
        """One store, at first empty."""
        return open_store()

    @pytest.fixture
    def conditional(self, store: Store) -> Store:
        """One that has conditional puts."""
        if not store.conditional:
            pytest.skip("this kind of store has no conditional puts")
        return store

    def test_an_empty_store_has_nothing(self, store: Store) -> None:
        store.prepare()
        assert store.location
        assert store.get("a/b") is None
        assert store.get_many(["a", "b/c"]) == {} and store.get_many([]) == {}
        store.delete("a/b")

    @pytest.mark.parametrize("size", [0, 1, 1000, 1 << 20], ids=str)
    def test_get_returns_the_bytes_that_were_put(self, store: Store, open_store: MakeStore, size: int) -> None:
        data = bytes(range(256)) * (size // 256) + bytes(size % 256)
        store.put("some/name", data)
        for one in (store, open_store()):
            found = one.get("some/name")
            assert found == data and isinstance(found, bytes)

    def test_put_replaces_and_delete_removes(self, store: Store) -> None:
        store.put("a", b"old and longer")
        store.put("a", b"new")
        store.put("b", b"other")
        assert store.get("a") == b"new"
        store.delete("a")
        assert store.get("a") is None and store.get("b") == b"other"

    def test_get_many_returns_what_is_there(self, store: Store) -> None:
        names = [f"many/{number:03}" for number in range(40)]
        for number, name in enumerate(names[::2]):
            store.put(name, b"%d" % number)
        found = store.get_many([*names, "many/none"])
        assert found == {name: b"%d" % number for number, name in enumerate(names[::2])}

    def test_copy_puts_the_same_under_another_name(self, store: Store) -> None:
        assert store.copy("none", "b") is False
        store.put("a/1", b"bytes")
        store.put("b/2", b"older")
        assert store.copy("a/1", "b/2") is True and store.copy("a/1", "c/d/e") is True
        assert [store.get(name) for name in ("a/1", "b/2", "c/d/e")] == [b"bytes"] * 3

    def test_list_finds_the_names_that_begin_so(self, store: Store) -> None:
        if not self.lists:
            pytest.skip("this kind of store cannot list")
        assert list(store.list("")) == [] and list(store.list("none/")) == []
        names = ["programs/aa/1", "programs/aa/2", "programs/ab/1", "tuning/x", "top", "odd/[a]*?"]
        for name in names:
            store.put(name, b"x")
        assert sorted(store.list("")) == sorted(names)
        assert sorted(store.list("programs/aa/")) == ["programs/aa/1", "programs/aa/2"]
        assert sorted(store.list("programs/a")) == sorted(names[:3])
        assert list(store.list("odd/[a]")) == ["odd/[a]*?"]
        assert list(store.list("none/")) == []

    def test_many_names_are_listed(self, store: Store) -> None:
        if not self.lists:
            pytest.skip("this kind of store cannot list")
        names = [f"p/{number:04}" for number in range(self.many)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda name: store.put(name, b""), names))
        assert sorted(store.list("p/")) == names

    def test_readers_see_whole_bytes_or_none(self, store: Store) -> None:
        versions = [bytes([number]) * size for number, size in enumerate((10, 70_000, 300_000))]

        def work(number: int) -> None:
            for step in range(12):
                if number % 2:
                    assert store.get("shared") in (None, *versions)
                elif number == 0 and step % 5 == 4:
                    store.delete("shared")
                else:
                    store.put("shared", versions[(number + step) % 3])

        _at_once(4, work)

    def test_files_are_uploaded_and_downloaded(self, store: Store, tmp_path: Path) -> None:
        data = bytes(range(256)) * 50_000  # 12.8 MB: more than one part of a multipart upload
        (tmp_path / "up").write_bytes(data)
        store.upload("checkpoints/run", tmp_path / "up", head=b"head")
        assert store.download("checkpoints/run", tmp_path / "down") is True
        assert (tmp_path / "down").read_bytes() == b"head" + data
        assert store.download("checkpoints/none", tmp_path / "none") is False
        assert not (tmp_path / "none").exists()
        store.upload("checkpoints/run", _small(tmp_path))
        assert store.get("checkpoints/run") == b"small", "an upload takes the place of an older one"

    def test_one_of_many_creates(self, conditional: Store) -> None:
        for turn in range(3):
            made = _at_once(6, lambda number, turn=turn: conditional.create(f"lease/{turn}", b"%d" % number))  # type: ignore[misc]
            (winner,) = (number for number, version in enumerate(made) if version)
            found = conditional.get_versioned(f"lease/{turn}")
            assert found is not None and found == (b"%d" % winner, made[winner])
        assert conditional.create("lease/0", b"again") is None
        conditional.delete("lease/0")
        assert conditional.create("lease/0", b"again")

    def test_one_of_many_replaces(self, conditional: Store) -> None:
        conditional.put("a", b"first")
        for turn in range(3):
            before = conditional.get_versioned("a")
            assert before is not None

            def replace(number: int, turn: int = turn, version: str = before.version) -> str | None:
                return conditional.replace("a", b"%d by %d" % (turn, number), version)

            done = _at_once(6, replace)
            (winner,) = (number for number, version in enumerate(done) if version)
            assert conditional.get_versioned("a") == (b"%d by %d" % (turn, winner), done[winner])

    def test_what_changed_or_went_is_not_replaced(self, conditional: Store) -> None:
        assert conditional.get_versioned("a") is None
        conditional.put("a", b"first")
        before = conditional.get_versioned("a")
        assert before is not None and before.data == b"first"
        conditional.put("a", b"second")
        assert conditional.replace("a", b"third", before.version) is None
        assert conditional.get("a") == b"second"
        conditional.delete("a")
        assert conditional.replace("a", b"third", before.version) is None
        assert conditional.get("a") is None

    def test_a_counter_loses_no_step(self, conditional: Store) -> None:
        conditional.put("count", b"0")

        def add(number: int) -> None:
            for _ in range(5):
                while True:
                    found = conditional.get_versioned("count")
                    assert found is not None
                    if conditional.replace("count", b"%d" % (int(found.data) + 1), found.version):
                        break

        _at_once(4, add)
        assert conditional.get("count") == b"20"

    def test_it_works_again_after_it_was_closed(self, store: Store) -> None:
        store.put("a", b"x")
        store.abort()
        store.close()
        assert store.get("a") == b"x"


def _small(folder: Path) -> Path:
    path = folder / "small"
    path.write_bytes(b"small")
    return path
