"""Messages that are encoded once and filled in often: those of a fabric differ in few fields.

To encode a message takes pyroute2 some 100 µs, to fill in another's blanks 2 µs; a fabric needs one
for every port, neighbour, address and route.
"""


class Form:
    """An encoded message with blanks: runs of bytes that occur in no other place of it."""

    __slots__ = ("_data", "_places")

    def __init__(self, data: bytes, *blanks: bytes) -> None:
        """Find the blanks in an encoded message.

        Raises:
            ValueError: one does not occur exactly once.
        """
        for one in blanks:
            if data.count(one) != 1:
                raise ValueError(f"the blank {one!r} occurs {data.count(one)} times in {data!r}")
        self._data = data
        self._places = tuple((data.index(one), len(one)) for one in blanks)

    def filled(self, *values: bytes) -> bytes:
        """Return the message with values in its blanks, in the order in which those were given.

        Raises:
            ValueError: not one value for each blank, or one of another length.
        """
        data = bytearray(self._data)
        for (start, length), value in zip(self._places, values, strict=True):
            if len(value) != length:
                raise ValueError(f"{value!r} does not fit into a blank of {length} bytes")
            data[start : start + length] = value
        return bytes(data)
