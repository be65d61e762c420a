"""Connection matrices in the format of htsim: lists of transfers with sender, receiver and start.

    Nodes 8
    Connections 2
    0->4 id 1 start 0 size 2000000
    1->5 id 2 start 1000000 size 2000000

Node n is host n of the fabric, `start` is in picoseconds (also as `2.5e6`), `size` in bytes. A line
that begins with `#` is a comment. Transfers started by a trigger are refused, and so are failing
links: faults belong in the scenario.
"""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

from testbed.model.errors import InputError, Problem, raise_any

_PS_PER_NS = 1000
_HEADER = re.compile(r"(Nodes|Connections)\s+(\d+)", re.ASCII)
_ENDS = re.compile(r"(\d+)->(\d+)", re.ASCII)
_WHOLE = re.compile(r"\d+", re.ASCII)
_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d{1,2})?", re.ASCII)
_EMPTY = re.compile(r"\s*(#|(Triggers|Failures)\s+0\s*$)", re.ASCII)
"""Lines without content: comments, and counts of 0 of what is not supported."""

_IGNORED = frozenset(("id", "prio"))
_REFUSED = {
    "trigger": "transfers that all begin at a time (start): triggers are not supported",
    "failure": "no failures: faults are set in the scenario, in timeline",
}
"""What is expected instead of a line that htsim supports and this does not, by its first word."""

_EXPECTED = "a line such as 0->4 start 0 size 2000000"


def read_matrix(file: Path) -> list[dict[str, Any]]:
    """Read a file; each transfer becomes a mapping as in a scenario's `workload.matrix`.

    Raises:
        InputError: it cannot be read, or is not a connection matrix.
    """
    counts: dict[str, int] = {}
    transfers: list[dict[str, Any]] = []
    problems: list[Problem] = []
    for number, line in enumerate(_text(file).splitlines(), 1):
        header = _HEADER.fullmatch(line.strip())
        if header is not None:
            counts[header[1]] = int(header[2])
        elif line.strip() and _EMPTY.match(line) is None:
            words = line.split()
            refused = _REFUSED.get(words[0].lower().removesuffix("s"))
            transfer = refused or _transfer(words, counts.get("Nodes", 0))
            if isinstance(transfer, str):
                problems.append(Problem(f"{file}:{number}", line.strip(), transfer))
            else:
                transfers.append(transfer)
    problems += [
        Problem(str(file), "", f"a line {name} with the number of them")
        for name in ("Nodes", "Connections")
        if name not in counts
    ]
    if not problems and counts["Connections"] != len(transfers):
        found = f"Connections {counts['Connections']}"
        expected = f"the number of transfers, {len(transfers)}"
        problems.append(Problem(str(file), found, expected))
    raise_any(problems)
    return transfers


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except UnicodeDecodeError as error:
        found = f"a byte that is not ASCII at offset {error.start}"
    except OSError as error:
        found = (error.strerror or str(error)).lower()
    raise InputError.of(str(file), found, "a connection matrix")


def _transfer(words: list[str], nodes: int) -> dict[str, Any] | str:
    """The transfer of a line, or what was expected instead."""
    ends = _ENDS.fullmatch(words[0])
    if ends is None or len(words) % 2 == 0:
        return _EXPECTED
    if max(int(ends[1]), int(ends[2])) >= nodes:
        return f"nodes below {nodes}, the number of the line Nodes"
    keys = dict(zip(words[1::2], words[2::2], strict=True))
    for key, value in keys.items():
        if "trigger" in key:
            return _REFUSED["trigger"]
        form = _NUMBER if key == "start" else _WHOLE
        if key not in {"start", "size", *_IGNORED} or form.fullmatch(value) is None:
            return _EXPECTED
    if not int(keys.get("size", 0)):
        return f"{_EXPECTED}, with a size above 0"
    start_ns = round(Decimal(keys.get("start", "0")) / _PS_PER_NS)
    return {
        "src": f"h{int(ends[1])}",
        "dst": f"h{int(ends[2])}",
        "start": f"{start_ns} ns",
        "size": int(keys["size"]),
    }
