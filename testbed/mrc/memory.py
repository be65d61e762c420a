"""Registered memory, the target of RDMA WRITEs; rkey and bounds are checked for every packet."""

View = memoryview
"""A view of bytes. mypyc does not find `memoryview` itself in these annotations."""


class AccessError(Exception):
    """A WRITE to memory that it may not write."""


class RkeyError(AccessError):
    """The rkey is not registered."""


class BoundsError(AccessError):
    """The bytes lie outside the region of the rkey."""


class Region:
    """`size` bytes, reachable by peers as `va` to `va + size` under `rkey`."""

    def __init__(self, rkey: int, va: int, size: int) -> None:
        self.rkey = rkey
        self.va = va
        self.size = size

    def write(self, start: int, payload: bytes | bytearray | memoryview) -> None:
        """Store a payload at an offset within the region."""
        raise NotImplementedError


class MemoryRegion(Region):
    """A region in `buffer`, all of it.

    Raises:
        ValueError: the buffer is read-only or not made of bytes.
    """

    def __init__(self, rkey: int, va: int, buffer: View) -> None:
        if buffer.readonly or buffer.itemsize != 1:
            raise ValueError("a memory region needs a writable buffer of bytes")
        super().__init__(rkey, va, len(buffer))
        self.buffer = buffer

    def write(self, start: int, payload: bytes | bytearray | memoryview) -> None:
        """Copy a payload to an offset within the region."""
        self.buffer[start : start + len(payload)] = payload


class PayloadRegion(Region):
    """A region that keeps the payloads themselves, by their offset, without copying them.

    For a simulator: there a payload is a view of what the peer posted, so nothing is stored twice.
    """

    def __init__(self, rkey: int, va: int, size: int) -> None:
        super().__init__(rkey, va, size)
        self.payloads: dict[int, View] = {}

    def write(self, start: int, payload: bytes | bytearray | memoryview) -> None:
        """Keep a payload at an offset within the region."""
        self.payloads[start] = memoryview(payload)

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
        self._regions: dict[int, Region] = {}

    def register(self, region: Region) -> None:
        """Register a region: peers may write to it.

        Raises:
            ValueError: the rkey is taken.
        """
        if region.rkey in self._regions:
            raise ValueError(f"rkey {region.rkey:#x} is already registered")
        self._regions[region.rkey] = region

    def deregister(self, rkey: int) -> None:
        """Remove the region of `rkey`; later WRITEs to it are refused.

        Raises:
            KeyError: no such region.
        """
        del self._regions[rkey]

    def place(self, rkey: int, va: int, payload: bytes | bytearray | memoryview) -> None:
        """Write all of `payload` to `va`, or nothing; an empty payload is not checked.

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
        if start < 0 or start + len(payload) > region.size:
            raise BoundsError(f"{va:#x} + {len(payload)} is outside the region of rkey {rkey:#x}")
        region.write(start, payload)
