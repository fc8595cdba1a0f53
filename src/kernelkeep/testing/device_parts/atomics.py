"""Atomics: every work-item of every group changes one word, and none is lost."""

from __future__ import annotations

import numpy as np
import pytest

from ...devices.base import Device
from ...errors import Unsupported
from ...programs.portable import Buffer, PortableKernel, Scalar
from .common import DevicePart

__all__ = ["AtomicTests"]

_GROUPS, _GROUP = 33, 32
_ITEMS = _GROUPS * _GROUP


class AtomicTests(DevicePart):
    """32-bit integers everywhere; floats where the device has them, refused by name elsewhere."""

    @pytest.mark.parametrize(("dtype", "to"), [("i4", "kk_int"), ("u4", "kk_uint")])
    def test_integers(self, device: Device, dtype: str, to: str) -> None:
        kernel = PortableKernel(
            "words",
            params=[Buffer("c", dtype, "rw"), Buffer("old", dtype, "w")],
            body=f"""int i = kk_global_id(0);
                     kk_atomic_add(c[0], {to}(3));
                     kk_atomic_sub(c[1], {to}(2));
                     kk_atomic_min(c[2], {to}(i + 5));
                     kk_atomic_max(c[3], {to}(i + 5));
                     kk_atomic_and(c[4], {to}(2147483647 - (1 << (i % 16))));
                     kk_atomic_or(c[5], {to}(1 << (i % 20)));
                     kk_atomic_xor(c[6], {to}(i));
                     old[i] = kk_atomic_exchange(c[7], {to}(i + 1));""",
            group=_GROUP,
        )
        start = np.array([10, 5000, 100_000, 0, 2**31 - 1, 1 << 25, 9, 77_777], dtype)
        c, old = self.run(device, kernel, _GROUPS, start, np.zeros(_ITEMS, dtype))
        ids = np.arange(_ITEMS)
        expected = [10 + 3 * _ITEMS, 5000 - 2 * _ITEMS, 5, _ITEMS + 4, (2**31 - 1) & ~0xFFFF]
        expected += [(1 << 25) | ((1 << 20) - 1), 9 ^ int(np.bitwise_xor.reduce(ids))]
        assert c[:7].tolist() == expected
        # Every value is seen exactly once: as the old value of another work-item, or as the final value.
        assert sorted([*old.tolist(), int(c[7])]) == [*range(1, _ITEMS + 1), 77_777]

    @pytest.mark.parametrize(("dtype", "kind"), [("i4", "int"), ("u4", "uint")])
    def test_compare_and_swap(self, device: Device, dtype: str, kind: str) -> None:
        kernel = PortableKernel(
            "swap",
            params=[Buffer("c", dtype, "rw")],
            body=f"""{kind} seen = c[0];
                     for (int attempt = 0; attempt < 1000000; attempt = attempt + 1) {{
                         {kind} was = kk_atomic_cas(c[0], seen, seen + kk_{kind}(1));
                         if (was == seen) break;
                         seen = was;
                     }}""",
            group=_GROUP,
        )
        (c,) = self.run(device, kernel, _GROUPS, np.array([100], dtype))
        assert c[0] == 100 + _ITEMS

    def test_old_values_of_add_are_tickets(self, device: Device) -> None:
        kernel = PortableKernel(
            "tickets",
            params=[Buffer("counter", "i4", "rw"), Buffer("ticket", "i4", "w")],
            body="ticket[kk_global_id(0)] = kk_atomic_add(counter[0], 1);",
            group=_GROUP,
        )
        counter, ticket = self.run(device, kernel, _GROUPS, np.zeros(1, "i4"), np.zeros(_ITEMS, "i4"))
        assert counter[0] == _ITEMS
        assert sorted(ticket.tolist()) == list(range(_ITEMS))

    def test_atomics_work_on_shared_arrays(self, device: Device) -> None:
        kernel = PortableKernel(
            "histogram",
            params=[Buffer("x", "i4", "r"), Buffer("h", "i4", "rw"), Scalar("n", "i4")],
            body="""kk_shared(int, bins, 16);
                    int l = kk_local_id(0), i = kk_global_id(0);
                    if (l < 16) bins[l] = 0;
                    kk_barrier();
                    if (i < n) kk_atomic_add(bins[x[i]], 1);
                    kk_barrier();
                    if (l < 16) kk_atomic_add(h[l], bins[l]);""",
            group=_GROUP,
        )
        x = (np.arange(1001, dtype="i4") * 7919) % 16
        _, h = self.run(device, kernel, _GROUPS, x.astype("i4"), np.zeros(16, "i4"), 1001)
        assert h.tolist() == np.bincount(x, minlength=16).tolist()

    @pytest.mark.parametrize(
        ("operation", "start", "expected"), [("add", 0.5, 0.5 + _ITEMS), ("sub", 0.5, 0.5 - _ITEMS)]
    )
    def test_float_add_and_subtract(self, device: Device, operation: str, start: float, expected: float) -> None:
        kernel = PortableKernel(
            "floats", params=[Buffer("f", "f4", "rw")], body=f"kk_atomic_{operation}(f[0], 1.0f);", group=_GROUP
        )
        if not device.capabilities.float_atomics:
            with pytest.raises(Unsupported) as caught:
                device.build(kernel.source(device))
            assert caught.value.capability == "float_atomics"
            return
        (f,) = self.run(device, kernel, _GROUPS, np.array([start], "f4"))
        assert f[0] == expected

    @pytest.mark.parametrize(("operation", "expected"), [("min", -1.5), ("max", _ITEMS - 2.5)])
    def test_float_min_and_max(self, device: Device, operation: str, expected: float) -> None:
        kernel = PortableKernel(
            "extreme",
            params=[Buffer("f", "f4", "rw")],
            body=f"kk_atomic_{operation}(f[0], kk_float(kk_global_id(0)) - 1.5f);",
            group=_GROUP,
        )
        if not device.capabilities.float_atomics:
            with pytest.raises(Unsupported) as caught:
                device.build(kernel.source(device))
            assert caught.value.capability == "float_atomics"
            return
        (f,) = self.run(device, kernel, _GROUPS, np.array([3.25], "f4"))
        assert f[0] == expected
