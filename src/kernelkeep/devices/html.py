"""What notebooks show of devices, their capabilities and arrays. Nothing is asked of a driver, and nothing waits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from ..html.card import badge, card, folded, section
from ..html.markup import Markup, element
from ..html.numbers import count, size
from ..html.table import Cell, facts, table

if TYPE_CHECKING:
    from .array import Array
    from .base import Device
    from .info import Capabilities, DeviceInfo


def devices_html(devices: Iterable[DeviceInfo]) -> str:
    """A list of devices as a table."""
    rows = [
        (
            element("code", one.spec),
            one.name,
            _kind(one),
            one.driver,
            Cell(size(one.memory_bytes) if one.memory_bytes else "–", one.memory_bytes),
        )
        for one in devices
    ]
    found = f"{len(rows)} device{'' if len(rows) == 1 else 's'}"
    if not rows:
        return card(found, "kernelkeep doctor says why")
    return card(found, "the best first", table(("spec", "name", "", "driver", "memory"), rows, name="devices"))


def device_info_html(info: DeviceInfo) -> str:
    """A device that is listed."""
    return card(info.name, f"{info.spec}, not opened", facts(_info_rows(info)))


def device_html(device: Device) -> str:
    """A device that was opened, with its capabilities folded."""
    state = "closed" if device.closed else "open"
    rows = [*_info_rows(device.info), ("language", device.language), ("cache folder", device.fingerprint.folder)]
    return card(
        device.info.name,
        f"{device.spec}, {state}",
        facts(rows),
        folded("capabilities", _capabilities(device.capabilities)),
    )


def capabilities_html(capabilities: Capabilities) -> str:
    """What a device can do and what it cannot."""
    return card("Capabilities", None, _capabilities(capabilities))


def array_html(array: Array) -> str:
    """An array without its contents: reading them would wait for whatever runs on the device."""
    shape = " × ".join(map(count, array.shape)) or "one value"
    contents = (element("code", ".numpy()"), " waits for the device and reads them")
    rows = [("shape", shape), ("dtype", array.dtype.name), ("bytes", size(array.nbytes)), ("device", array.device.spec)]
    return card("Array", None, facts([*rows, ("contents", contents if array.handle is not None else "none: closed")]))


def _info_rows(info: DeviceInfo) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = [("kind", _kind(info)), ("vendor", info.vendor), ("driver", info.driver)]
    return [*rows, ("memory", size(info.memory_bytes))] if info.memory_bytes else rows


def _kind(info: DeviceInfo) -> Markup:
    if info.is_interpreter:
        return badge("interpreter")
    return badge("GPU", "accent") if info.is_gpu else badge("CPU")


def _capabilities(capabilities: Capabilities) -> Markup:
    values = list(msgspec.structs.asdict(capabilities).items())
    has = [badge(name, "accent") for name, value in values if value is True]
    lacks = [badge(name) for name, value in values if value is False]
    limits: list[tuple[str, object]] = [
        (name, _limit(name, value)) for name, value in values if not isinstance(value, bool)
    ]
    return element(
        "div",
        section("has", element("div", has, class_="kk-words")),
        section("lacks", element("div", lacks or "nothing", class_="kk-words")),
        section("limits", facts(limits)),
    )


def _limit(name: str, value: object) -> object:
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return " × ".join(map(count, value))
    return size(value) if name.endswith("bytes") else count(value)
