"""What is assigned to: a variable, an element, a field, or elements of a vector. Its parts are evaluated once."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ....language.tree import Place
from ....language.types import StructType, Type, Vector
from .code import Code, Value, of_type
from .storage import Storage, StorageAccess


class Target(ABC):
    """A place for a value of `type`."""

    type: Type
    rounds = False  # storing a float rounds it

    @abstractmethod
    def load(self) -> Value:
        """What is there."""

    @abstractmethod
    def store(self, value: Value) -> None:
        """Put a value there."""

    @abstractmethod
    def container(self) -> str:
        """The list that a struct is there, to change one of its fields."""


class VariableTarget(Target):
    """A variable. `may_be_unset`: it was declared without a value."""

    def __init__(self, code: Code, name: str, kind: Type, at: Place, written: str, *, may_be_unset: bool) -> None:
        self._code = code
        self._name = name
        self._at = at
        self._written = written
        self._may_be_unset = may_be_unset
        self.type = kind

    def load(self) -> Value:
        value = of_type(self._name, self.type)
        return checked(self._code, value, self.type, self._at, self._written) if self._may_be_unset else value

    def store(self, value: Value) -> None:
        self._code.add(f"{self._name} = {_copied(value, self.type)}")

    def container(self) -> str:
        return self._name

    def load_parts(self) -> Value:
        """What is there, though a part of it may be unset."""
        return of_type(self._name, self.type)


class ElementTarget(Target):
    """An element of memory that work-items share."""

    def __init__(self, access: StorageAccess, storage: Storage, index: str, at: Place) -> None:
        self._access = access
        self.storage = storage
        self.index = index
        self._at = at
        self.type = storage.element
        self.rounds = storage.rounds

    def load(self) -> Value:
        return self._access.read(self.storage, self.index, self._at)

    def store(self, value: Value) -> None:
        self._access.write(self.storage, self.index, Value(_copied(value, self.type)), self._at)

    def container(self) -> str:
        self._access.note_write(self.storage, self.index, self._at)
        return f"{self.storage.prefix}[{self.index}]"


class SlotTarget(Target):
    """An element of a list: of a local array, or a field of a struct."""

    def __init__(self, code: Code, text: str, kind: Type, at: Place, written: str) -> None:
        self._code = code
        self._text = text
        self._at = at
        self._written = written
        self.type = kind

    def load(self) -> Value:
        return checked(self._code, of_type(self._text, self.type), self.type, self._at, self._written)

    def store(self, value: Value) -> None:
        self._code.add(f"{self._text} = {_copied(value, self.type)}")

    def container(self) -> str:
        return self._text

    def load_parts(self) -> Value:
        """What is there, though a part of it may be unset."""
        return of_type(self._text, self.type)


class VectorTarget(Target):
    """Elements of a vector: a number, or the text of an index, for each."""

    def __init__(self, code: Code, whole: Target, elements: list[int] | str, kind: Type, at: Place) -> None:
        assert isinstance(whole.type, Vector)
        self._code = code
        self._whole = whole
        self._elements = elements
        self._at = at
        self._count = whole.type.length
        self.type = kind

    def load(self) -> Value:
        parts = code_kept(self._code, self._parts())
        if isinstance(self._elements, str):
            value = of_type(f"{parts}[{self._elements}]", self.type)
        elif isinstance(self.type, Vector):
            value = Value(f"({', '.join(f'{parts}[{at}]' for at in self._elements)})")
        else:
            value = of_type(f"{parts}[{self._elements[0]}]", self.type)
        return checked(self._code, value, self.type, self._at, "this element of a vector")

    def store(self, value: Value) -> None:
        new = self._code.keep(value).text
        parts = code_kept(self._code, self._parts())
        if isinstance(self._elements, str):
            text = f"(*{parts}[:{self._elements}], {new}, *{parts}[{self._elements} + 1:])"
        else:
            texts = [f"{parts}[{at}]" for at in range(self._count)]
            for place, at in enumerate(self._elements):
                texts[at] = f"{new}[{place}]" if isinstance(self.type, Vector) else new
            text = f"({', '.join(texts)})"
        self._whole.store(Value(text))

    def container(self) -> str:
        raise AssertionError("elements of a vector are no structs")

    def _parts(self) -> Value:
        whole = self._whole
        return whole.load_parts() if isinstance(whole, VariableTarget | SlotTarget) else whole.load()


def code_kept(code: Code, value: Value) -> str:
    """The name of a value that is used several times."""
    return value.text if value.text.isidentifier() else code.keep(value).text


def checked(code: Code, value: Value, kind: Type, at: Place, written: str) -> Value:
    """A value that must have been written."""
    if isinstance(kind, StructType):
        return value  # its fields are checked when they are read
    kept = code.keep(value)
    wrong = f"UNSET in {kept.text}" if isinstance(kind, Vector) else f"{kept.text} is UNSET"
    code.add(f"if {wrong}: unset({code.point(at, written)}, me)")
    return kept


def _copied(value: Value, kind: Type) -> str:
    return f"copied({value.text})" if isinstance(kind, StructType) else value.text
