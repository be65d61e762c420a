"""What a header of the wire format is: its fields, in words that the codec reads at once.

`read` and `build` follow the declaration field by field: slow, for tools and tests. The codec takes
`struct`, `shift` and `mask`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final

_CODES: Final = {8: "B", 16: "H", 32: "I", 64: "Q", 128: "16s"}
"""Bits of a word, and the code by which `struct` knows it."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a header.

    Attributes:
        name: its name; empty where the bits are reserved: sent as 0, ignored on receipt.
        bits: its width.
        meaning: what it holds, with its values.
        agree: how many sources agree on its place, and which.
        signed: whether it is a number in two's complement.
    """

    name: str
    bits: int
    meaning: str = ""
    agree: str = ""
    signed: bool = False

    @property
    def reserved(self) -> bool:
        """Whether nothing is defined for these bits."""
        return not self.name


@dataclass(frozen=True, slots=True)
class FieldPosition:
    """Where a field stands: bits from the start of the header to its most significant bit."""

    field: Field
    offset_bits: int

    @property
    def text(self) -> str:
        """Bytes and bits as the tables of `docs/wire.md` show them: `1 bits 6:5`, `4-7`."""
        first, last = self.offset_bits, self.offset_bits + self.field.bits - 1
        if first % 8 == 0 and last % 8 == 7:  # noqa: PLR2004 - the bits of a byte
            return f"{first // 8}" if last - first < 8 else f"{first // 8}-{last // 8}"  # noqa: PLR2004
        start, end = f"{first // 8} bit {7 - first % 8}", f"{7 - last % 8}"
        if first // 8 == last // 8:
            return start if first == last else f"{start}:{end}"
        return f"{start} to {last // 8} bit {end}"


@dataclass(frozen=True, slots=True)
class Header:
    """One header: its fields, in words of 8, 16, 32, 64 or 128 bits that the codec reads at once.

    Attributes:
        name: the short name, as in the specification.
        title: what it is.
        agree: which sources have it at all.
        words: its fields, most significant first, grouped by word.
    """

    name: str
    title: str
    agree: str
    words: tuple[tuple[Field, ...], ...]

    def __post_init__(self) -> None:
        """Refuse a word that `struct` has no code for, and a name that occurs twice."""
        names = [field.name for word in self.words for field in word if not field.reserved]
        if len(set(names)) != len(names):
            raise ValueError(f"{self.name}: a field occurs twice")
        for word in self.words:
            if _bits(word) not in _CODES:
                raise ValueError(f"{self.name}: {_bits(word)} bits are no word")

    @property
    def size(self) -> int:
        """Bytes of the header."""
        return sum(map(_bits, self.words)) // 8

    def places(self) -> Iterator[FieldPosition]:
        """Yield every field, reserved ones too, with its place."""
        offset_bits = 0
        for word in self.words:
            for field in word:
                yield FieldPosition(field, offset_bits)
                offset_bits += field.bits

    def _word_of(self, name: str) -> tuple[Field, ...]:
        for word in self.words:
            if any(field.name == name for field in word):
                return word
        raise KeyError(f"{self.name} has no field {name}")

    def shift(self, name: str) -> int:
        """How far a field stands above the least significant bit of its word; KeyError if none."""
        shift = 0
        for field in reversed(self._word_of(name)):
            if field.name == name:
                break
            shift += field.bits
        return shift

    def most(self, name: str) -> int:
        """The largest value of a field, its bits set; KeyError if there is no such field."""
        return (1 << next(f.bits for f in self._word_of(name) if f.name == name)) - 1

    def mask(self, name: str) -> int:
        """The bits of a field within its word; KeyError if there is no such field."""
        return self.most(name) << self.shift(name)

    def format(self, *names: str) -> str:
        """The format, for `struct`, of the words that have one of these fields (none: all words).

        Other words are padding. A word that is one signed field is read as signed.

        Raises:
            KeyError: there is no such field.
        """
        words = [self._word_of(name) for name in names] or self.words
        return "".join(
            _code(word) if word in words else f"{_bits(word) // 8}x" for word in self.words
        )

    def struct(self, *names: str) -> Struct:
        """`format` as a `Struct`."""
        return Struct("!" + self.format(*names))

    def read(self, data: bytes | bytearray | memoryview, at: int = 0) -> dict[str, int]:
        """Every field but the reserved ones, of the header that begins at byte `at`.

        Raises:
            ValueError: the data ends before the header does.
        """
        raw = bytes(data[at : at + self.size])
        if len(raw) < self.size:
            raise ValueError(f"{self.name} has {self.size} bytes, there are {len(raw)}")
        whole, end = int.from_bytes(raw, "big"), self.size * 8
        values: dict[str, int] = {}
        for place in self.places():
            field = place.field
            if not field.reserved:
                value = whole >> end - place.offset_bits - field.bits & (1 << field.bits) - 1
                negative = field.signed and value >> field.bits - 1
                values[field.name] = value - (1 << field.bits) if negative else value
        return values

    def build(self, **values: int) -> bytes:
        """The bytes of a header with these values; fields that are not given are 0.

        Raises:
            KeyError: there is no such field.
            ValueError: a value does not fit its field.
        """
        whole = 0
        for place in self.places():
            field = place.field
            value = values.pop(field.name, 0)
            least, most = (
                (-1 << field.bits - 1, (1 << field.bits - 1) - 1)
                if field.signed
                else (
                    0,
                    (1 << field.bits) - 1,
                )
            )
            if not least <= value <= most:
                raise ValueError(f"{self.name}.{field.name} is {least} to {most}, not {value}")
            whole = whole << field.bits | value & (1 << field.bits) - 1
        if values:
            raise KeyError(f"{self.name} has no field {', '.join(values)}")
        return whole.to_bytes(self.size, "big")


def concatenated(*formats: str) -> Struct:
    """The formats of headers that follow each other, as one `Struct`."""
    return Struct("!" + "".join(formats))


def _bits(word: tuple[Field, ...]) -> int:
    return sum(field.bits for field in word)


def _code(word: tuple[Field, ...]) -> str:
    code = _CODES[_bits(word)]
    return code.lower() if len(word) == 1 and word[0].signed else code
