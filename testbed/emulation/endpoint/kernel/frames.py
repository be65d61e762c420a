"""Messages in a byte stream, each behind a header that says where it goes; sans-IO.

As iWARP does over TCP (RFC 5041, tagged buffers): address, rkey and length travel with the data, so
that the receiver puts every byte where a WRITE would have put it. The format is ours.
"""

import struct
from typing import NamedTuple

from testbed.mrc import MemoryTable

_HEADER = struct.Struct("!QIIBI")
HEADER_BYTES = _HEADER.size
LONGEST_READ = 1 << 18
"""The most bytes read from the stream at once."""


class Frame(NamedTuple):
    """The header of a message.

    Attributes:
        va: the virtual address that it is written to.
        rkey: the key of the memory there.
        length: the message's bytes.
        immediate: the immediate data; None without.
    """

    va: int
    rkey: int
    length: int
    immediate: int | None

    def encode(self) -> bytes:
        """The header on the stream."""
        has_immediate = self.immediate is not None
        return _HEADER.pack(self.va, self.rkey, self.length, has_immediate, self.immediate or 0)

    @classmethod
    def decode(cls, data: bytes) -> "Frame":
        """Read a header from the stream."""
        va, rkey, length, has_immediate, immediate = _HEADER.unpack(data)
        return cls(va, rkey, length, immediate if has_immediate else None)


class FrameReader:
    """Splits a stream into messages and places them in memory.

    A message that would overwrite one that has not been checked yet waits, and so does the stream
    behind it: TCP acknowledges bytes that its application has not read.
    """

    def __init__(self, memory: MemoryTable) -> None:
        """Place messages in `memory`."""
        self._memory = memory
        self._header = b""
        self._frame: Frame | None = None
        self._offset = 0
        self._unchecked: set[int] = set()

    @property
    def next_size(self) -> int:
        """The most bytes of the stream to feed next; 0 if they must wait."""
        frame = self._frame
        if frame is None:
            return HEADER_BYTES - len(self._header)
        if frame.va in self._unchecked:
            return 0
        return min(frame.length - self._offset, LONGEST_READ)

    def feed(self, data: bytes) -> tuple[int, Frame | None]:
        """Take the next bytes, at most `next_size`.

        Returns the number of payload bytes among them, and the message that they complete, if any.

        Raises:
            AccessError: the message may not be written where it says.
        """
        frame = self._frame
        if frame is None:
            self._header += data
            if len(self._header) == HEADER_BYTES:
                self._frame = Frame.decode(self._header)
                self._header, self._offset = b"", 0
            return 0, None
        self._memory.place(frame.rkey, frame.va + self._offset, data)
        self._offset += len(data)
        if self._offset < frame.length:
            return len(data), None
        self._frame = None
        self._unchecked.add(frame.va)
        return len(data), frame

    def release(self) -> None:
        """Let all messages placed so far be overwritten: they have been checked."""
        self._unchecked.clear()
