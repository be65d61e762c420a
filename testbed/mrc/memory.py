"""Registered memory, the target of RDMA WRITEs; rkey and bounds are checked for every packet."""

from dataclasses import dataclass, field

View = memoryview
"""A view of bytes. mypyc does not find `memoryview` itself in these annotations."""


class AccessError(Exception):
    """A WRITE to memory that it may not write."""


class RkeyError(AccessError):
    """The rkey is not registered."""


class BoundsError(AccessError):
    """The bytes lie outside the region of the rkey."""


@dataclass(frozen=True, slots=True)
class MemoryRegion:
    """`buffer` (writable), reachable by peers as `va` to `va + len(buffer)` under `rkey`."""

    rkey: int
    va: int
    buffer: View


@dataclass(frozen=True, slots=True)
class PayloadRegion:
    """`size` bytes under `rkey` from `va` on, of which the payloads themselves are kept, uncopied.

    For a simulator: there a payload is a view of what the peer posted, so nothing is stored twice.
    """

    rkey: int
    va: int
    size: int
    payloads: dict[int, View] = field(default_factory=dict)
    """By their offset in the region."""

    def take(self, start: int, end: int) -> list[View]:
        """Remove and return the payloads from `start` on, in order, up to `end` or to a gap."""
        taken: list[View] = []
        while start < end:
            payload = self.payloads.pop(start, None)
            if payload is None:
                break
            taken.append(payload)
            start += len(payload)
        return taken


class MemoryTable:
    """The memory regions of one endpoint, shared by its queue pairs."""

    def __init__(self) -> None:
        self._regions: dict[int, MemoryRegion] = {}

    def register(self, region: MemoryRegion) -> None:
        """Register a region: peers may write to it.

        Raises:
            ValueError: the rkey is taken, the buffer is read-only or not made of bytes.
        """
        if region.rkey in self._regions:
            raise ValueError(f"rkey {region.rkey:#x} is already registered")
        if region.buffer.readonly or region.buffer.itemsize != 1:
            raise ValueError("a memory region needs a writable buffer of bytes")
        self._regions[region.rkey] = region

    def deregister(self, rkey: int) -> None:
        """Remove the region of `rkey`; later WRITEs to it are refused.

        Raises:
            KeyError: no such region.
        """
        del self._regions[rkey]

    def place(self, rkey: int, va: int, payload: bytes | bytearray | memoryview) -> None:
        """Copy all of `payload` to `va`, or nothing; an empty payload is not checked.

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


class PayloadTable(MemoryTable):
    """A table of regions that keep payloads."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[int, PayloadRegion] = {}

    def keep(self, region: PayloadRegion) -> None:
        """Register a region: peers may write to it.

        Raises:
            ValueError: the rkey is taken.
        """
        if region.rkey in self._kept:
            raise ValueError(f"rkey {region.rkey:#x} is already registered")
        self._kept[region.rkey] = region

    def place(self, rkey: int, va: int, payload: bytes | bytearray | memoryview) -> None:
        """Keep `payload` at `va`, or nothing; an empty payload is not checked.

        Raises:
            RkeyError: unknown rkey.
            BoundsError: any byte out of bounds.
        """
        if not payload:
            return
        region = self._kept.get(rkey)
        if region is None:
            raise RkeyError(f"rkey {rkey:#x} is not registered")
        start = va - region.va
        if start < 0 or start + len(payload) > region.size:
            raise BoundsError(f"{va:#x} + {len(payload)} is outside the region of rkey {rkey:#x}")
        region.payloads[start] = memoryview(payload)
