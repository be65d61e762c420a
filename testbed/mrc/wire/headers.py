"""The headers that MRC shares with RoCEv2 and UET, and those of a WRITE, each declared once.

Those of the control packets are in `kinds.py`.

The codec takes its formats, shifts and masks from here, and `docs/wire.md` its tables.

`agree` says how many independent public sources have a field at its place, and which: F an FPGA
responder, D a dissector, M a packet generator, N an ns-3 model, K the templates of a tester (order
of fields only), G, Z1, Z2, O, P, T descriptions (P, T: MRC's authors), A the OCP MRC API, U1 a
reading of UEC, I IBTA, R the RFCs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final

# --------------------------------------------------------------------------------------------------
# What a header of the wire format is: its fields, in words that the codec reads at once.
#
# `read` and `build` follow the declaration field by field: slow, for tools and tests. The codec
# takes `struct`, `shift` and `mask`.


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


def reserved(bits: int, agree: str = "") -> Field:
    """Bits that are sent as 0 and not read."""
    return Field("", bits, agree=agree)


TIMESTAMP_FTYPE: Final = 1
"""The value of the field `ftype` where `tx_timestamp` is a timestamp."""


def timestamp_fields(agree: str) -> tuple[tuple[Field, ...], ...]:
    """The four bytes with which a sender says when it sent a packet."""
    return (
        (Field("tx_timestamp", 16, "when the packet was sent, in the unit that tsr says", agree),),
        (
            Field("tsr", 1, "unit: 0 is 128 ns, 1 is the sender's own", agree),
            reserved(11, agree),
            Field("ftype", 4, "1: the timestamp is one", agree),
        ),
    )


FDMN: Final = "4: FDMN, K"
"""The sources that agree on most fields."""

IPV6: Final = Header(
    "IPv6",
    "inner IPv6 header",
    "3: PGM",
    (
        (
            Field("version", 4, "6", "R"),
            Field("dscp", 6, "traffic class: the operator's values", "3: GM Z2"),
            Field("ecn", 2, "2: capable (ECT(0)), 3: congestion seen", "R"),
            reserved(4, "3: PGM"),
            Field("label", 16, "one half of the EV", "3: PGM"),
        ),
        (Field("length", 16, "bytes behind this header", "R"),),
        (Field("next_header", 8, "17: UDP", "R"),),
        (Field("hop_limit", 8, "64 at the sender", "R"),),
        (Field("source", 128, "address of the sending NIC", "R"),),
        (Field("destination", 128, "address of the receiving NIC", "R"),),
    ),
)

UDP: Final = Header(
    "UDP",
    "UDP header",
    "5: FDMNG",
    (
        (Field("source_port", 16, "the other half of the EV", "4: PGMN"),),
        (
            Field(
                "port",
                16,
                "4791 (RoCEv2) or 4971: both are accepted, which is sent is an option",
                "conflict: 4791 I, D, G; 4971 DMN",
            ),
        ),
        (Field("udp_length", 16, "as in IPv6", "R"),),
        (Field("checksum", 16, "0; not checked", "2: M, I"),),
    ),
)

BTH: Final = Header(
    "BTH",
    "base transport header",
    FDMN,
    (
        (Field("opcode", 8, "which packet it is", "4: DMNK"),),
        (
            reserved(2, "SE and M, in the one order (DN, I) or the other (FMK)"),
            Field("pad", 2, "bytes of zeros behind the payload", "5: FDMNK"),
            Field("version", 4, "0; others are refused", "5: FDMNK"),
        ),
        (Field("pkey", 16, "FFFF; ignored", "3: FKN"),),
        (
            reserved(8, "4: FDMN, I; the iCRC masks it"),
            Field("dqp", 24, "QPN at the receiver; 2 is the endpoint itself", "4: FDMN"),
        ),
        (
            Field("ack_request", 1, "AckReq: asks for a SACK and an ACK", "5: FDMNK"),
            reserved(1, "3: FDM, K"),
            Field("rtx", 1, "a retransmission; a SACK echoes it", "3: FDM, K; echo 1: M, U1"),
            Field("ts", 1, "a TSETH follows the METH", "3: FDM, K"),
            reserved(4, "3: FDM, K"),
            Field("psn", 24, "see the table of packets", "4: FDMN"),
        ),
    ),
)

BASE_BYTES: Final = IPV6.size + UDP.size + BTH.size
"""The headers that every inner packet begins with."""

METH: Final = Header(
    "METH",
    "message header of a WRITE",
    "5: FDMNG, K",
    (
        (
            Field(
                "rqmsn",
                16,
                "counts WRITEs with immediate, from 0; the same on every packet; else 0",
                "4: DMNG, K; from 0: F",
            ),
        ),
        (
            Field(
                "msn",
                16,
                "counts messages, from 0; the same on every packet of one",
                "5: FDMNG, K; from 0: F",
            ),
        ),
    ),
)

TSETH: Final = Header(
    "TSETH", "timestamp, where BTH.ts is set", "5: FDMGK", timestamp_fields("3: DMN, K")
)

RETH: Final = Header(
    "RETH",
    "RDMA header of a WRITE",
    "3: DMN, K, I",
    (
        (Field("va", 64, "address of this packet's payload", "3: DMN, K; per packet 4: FNG Z2"),),
        (Field("rkey", 32, "key of the memory region", "3: DMN, K"),),
        (
            Field(
                "dma_length",
                32,
                "bytes of the whole message, on every packet",
                "3: DMN, K; whole 2: FN",
            ),
        ),
    ),
)

IMMDT: Final = Header(
    "ImmDt",
    "immediate data, with opcodes C9 and CB",
    FDMN,
    ((Field("immediate", 32, "for the program at the receiver", FDMN),),),
)
