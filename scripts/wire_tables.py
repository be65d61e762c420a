"""Write the tables of docs/wire.md from the declarations of headers and packets.

A table stands between `<!-- packets -->`, or `<!-- header SETH -->`, and `<!-- end -->`.

    python scripts/wire_tables.py
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from testbed.mrc.wire.headers import Header
from testbed.mrc.wire.kinds import HEADERS, KINDS

DOCUMENT = Path(__file__).parents[1] / "docs" / "wire.md"
BY_NAME = {header.name: header for header in HEADERS}
_TABLE = re.compile(r"(<!-- (packets|header (\w+)) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_tables(document: str) -> str:
    """A document with the tables that its comments ask for."""
    return _TABLE.sub(
        lambda match: match[1] + (table(BY_NAME[match[3]]) if match[3] else packets()) + match[4],
        document,
    )


def table(header: Header) -> str:
    """A table of a header's fields."""
    rows = (
        (
            place.text,
            str(place.field.bits),
            f"`{place.field.name}`" if place.field.name else "reserved",
            place.field.meaning or "0; ignored",
            place.field.agree,
        )
        for place in header.places()
    )
    return _table(("bytes", "bits", "field", "meaning, values", "agree"), rows)


def packets() -> str:
    """A table of the kinds of packets."""
    rows = (
        (
            kind.name,
            " ".join(f"{code:02X}" for code in kind.opcodes),
            ", ".join(f"{header.name} {header.size}" for header in kind.headers),
            kind.dqp,
            kind.psn,
            kind.dscp,
            kind.agree,
        )
        for kind in KINDS
    )
    return _table(
        ("packet", "opcodes", "behind the BTH", "BTH.dqp", "BTH.psn", "class", "agree"), rows
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (head, ["---"] * len(head), *rows)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
