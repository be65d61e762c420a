"""Registered memory: where RDMA WRITEs land, guarded by an rkey and bounds on every packet."""

from dataclasses import dataclass

Writable = memoryview
"""A writable view of bytes. Under a name of its own, or mypyc would not find it in annotations."""


class AccessError(Exception):
    """A WRITE names bytes that it may not write."""


class RkeyError(AccessError):
    """It names an rkey that is not registered."""


class BoundsError(AccessError):
    """It names bytes outside the region of its rkey."""


@dataclass(frozen=True, slots=True)
class MemoryRegion:
    """`buffer` (writable), reachable by peers as `va` to `va + len(buffer)` under `rkey`."""

    rkey: int
    va: int
    buffer: Writable


class MemoryTable:
    """The memory regions of one endpoint, shared by its queue pairs."""

    def __init__(self) -> None:
        self._regions: dict[int, MemoryRegion] = {}

    def register(self, region: MemoryRegion) -> None:
        """Make `region` reachable.

        Raises:
            ValueError: the rkey is taken, the buffer is read-only or not made of bytes.
        """
        if region.rkey in self._regions:
            raise ValueError(f"rkey {region.rkey:#x} is already registered")
        if region.buffer.readonly or region.buffer.itemsize != 1:
            raise ValueError("a memory region needs a writable buffer of bytes")
        self._regions[region.rkey] = region

    def deregister(self, rkey: int) -> None:
        """Forget the region of `rkey`; later WRITEs to it are refused.

        Raises:
            KeyError: no such region.
        """
        del self._regions[rkey]

    def place(self, rkey: int, va: int, payload: bytes | bytearray | memoryview) -> None:
        """Copy `payload` to `va`, all of it or nothing; an empty one touches and checks nothing.

        Raises:
            RkeyError: unknown rkey.
            BoundsError: any byte out of bounds.
        """
        if not payload:
            return
        region = self._regions.get(rkey)
        if region is None:
            raise RkeyError(f"rkey {rkey:#x} is not registered")
        start = va - region.va
        end = start + len(payload)
        if start < 0 or end > len(region.buffer):
            raise BoundsError(f"{va:#x} + {len(payload)} is outside the region of rkey {rkey:#x}")
        region.buffer[start:end] = payload
