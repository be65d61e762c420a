"""The table of conformance: rules of MRC, who agrees on them, what we do, which test proves it.

There is a row for each field that `testbed/mrc/wire/headers.py` declares, and for each rule of
`rules.py`. `scripts/conformance.py` writes docs/conformance.md from it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from testbed.mrc.wire import headers
from testbed.mrc.wire.headers import IMMDT, METH, RETH, FieldPosition, Header
from testbed.mrc.wire.kinds import AETH, CC_STATE, COMMON, EETH, ERTH, NETH, PETH, SETH


class State(StrEnum):
    """How far we follow a rule."""

    DONE = "done"
    OPTION = "an option"
    NOT_YET = "not yet"
    ABSENT = "not implemented"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of the table.

    Attributes:
        section: what it belongs to.
        rule: the rule, or the field and its meaning.
        agree: how many sources agree, and which, as in docs/wire.md: `3: FMN`.
        here: what we do.
        test: the test that proves it, by its id; empty where there is none to be.
        state: how far we follow it.
    """

    section: str
    rule: str
    agree: str
    here: str
    test: str = ""
    state: State = State.DONE

    @property
    def confidence(self) -> str:
        """What the number of agreeing sources is worth."""
        if self.state is State.OPEN:
            return "open"
        if "conflict" in self.agree:
            return "conflict"
        first = self.agree.partition(";")[0]
        number = re.search(r"\d+(?=: )", first)
        sources = re.findall(r"Z1|Z2|U1|[A-Z]", first)
        agreeing = (
            sum(map(len, re.findall(r"\b[A-Z]+\b", first))) if number is None else int(number[0])
        )
        if number is None and {"I", "R"} & set(sources):
            return "standard"
        return {0: "inferred", 1: "one source", 2: "good"}.get(agreeing, "high")


_READ = "tests/mrc/test_vectors.py::test_any_changed_bit_is_read_as_declared_or_refused"
_WRITE = "tests/mrc/test_vectors.py::test_write_vectors[V1-packet0-10]"
_CONTROL = "tests/mrc/test_vectors.py::test_control_vectors"

_VECTORS: dict[Header, str] = {
    headers.IPV6: "V1",
    headers.UDP: "V1",
    headers.BTH: "V1",
    METH: "V2",
    headers.TSETH: "V1",
    RETH: "V1",
    IMMDT: "V2",
    AETH: "V3",
    SETH: "V4",
    CC_STATE: "V4",
    NETH: "V5",
    PETH: "V6",
    ERTH: "V10",
    EETH: "V9",
}
"""A vector with each header."""

_NOT_READ = {"pkey", "type", "next_header", "vendor_info", "cc_fl", "hop_limit", "checksum"}
_NOT_READ |= {"dpdcid", "spdcid"}
"""Fields that are sent as said and ignored on receipt, for which the bytes that are sent count."""


def fields() -> Iterator[Rule]:
    """A row for each field of each header that is not reserved."""
    for header, vector in _VECTORS.items():
        for place in header.places():
            if not place.field.reserved:
                yield _field(header, place, vector)


def _field(header: Header, place: FieldPosition, vector: str) -> Rule:
    field = place.field
    sent_only = field.name in _NOT_READ or (header is NETH and field.name == "cc_type")
    sent = _WRITE if header in {*COMMON} else f"{_CONTROL}[{vector}]"
    return Rule(
        section=f"{header.name}, {header.title}",
        rule=f"`{field.name}`, bytes {place.text}",
        agree=field.agree or header.agree,
        here=field.meaning,
        test=sent if sent_only else f"{_READ}[{vector}]",
    )
