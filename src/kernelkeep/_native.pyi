from collections.abc import Callable
from typing import Any

class BoundCall:
    calls_under_way: int
    def bind_function(
        self, address: int, arguments: tuple[int, ...], calls: int = 0, alone: bool = False, /
    ) -> None: ...
    def call_failed(self, status: int, /) -> None: ...
    def called_often(self) -> None: ...
    def __call__(self) -> None: ...

class CheckedLaunch:
    def __new__(
        cls,
        function: int,
        kernel: int,
        stream: int,
        codes: str,
        offsets: tuple[int, ...],
        nbytes: int,
        checks: tuple[object, ...],
        array: type,
        device: object,
        slow: Callable[[tuple[Any, ...], Any], Any],
        /,
    ) -> CheckedLaunch: ...
    def __call__(self, args: tuple[Any, ...], shape: Any, /) -> Any: ...
