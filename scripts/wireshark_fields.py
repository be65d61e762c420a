"""Write the fields of tools/wireshark/mrc.lua from the declarations of headers, packets and uSIDs.

They stand between `-- declarations` and `-- end`.

    python scripts/wireshark_fields.py
"""

import re
from collections.abc import Iterator, Mapping
from enum import IntEnum
from pathlib import Path

from testbed.model.fabric import addressing
from testbed.mrc import constants
from testbed.mrc.constants import AETH_NO_CREDITS, EndpointOp, EvMark, NackReason, NakCode
from testbed.mrc.wire import headers, kinds
from testbed.mrc.wire.headers import Field, Header
from testbed.mrc.wire.kinds import IMMEDIATE_OPCODES, KINDS, UDP_PORTS, Opcode

DISSECTOR = Path(__file__).parents[1] / "tools" / "wireshark" / "mrc.lua"

PREFIXES = {
    headers.BTH: "bth",
    headers.METH: "write",
    headers.TSETH: "write",
    headers.RETH: "write",
    headers.IMMDT: "write",
    kinds.AETH: "ack",
    kinds.SETH: "sack",
    kinds.CC_STATE: "sack",
    kinds.NETH: "nack",
    kinds.PETH: "probe",
    kinds.ERTH: "request",
    kinds.EETH: "response",
}
"""The first part of the names of a header's fields: `mrc.sack.cack` is of the SETH."""

SHORT = {"cack_psn": "cack", "nack_reason": "reason", "nack_psn": "psn", "entropy": "ev"}
"""Names that would repeat what the prefix says; and EV is the word for entropy."""

_OPS = {op.value: op.name for op in EndpointOp}
_SYNDROMES = {AETH_NO_CREDITS: "ACK"} | {code.value: f"NAK {code.name}" for code in NakCode}


def _names(enum: type[IntEnum]) -> dict[int, str]:
    return {member.value: member.name for member in enum}


VALUES: Mapping[str, Mapping[int, str]] = {
    "mrc.bth.opcode": _names(Opcode),
    "mrc.ack.syndrome": _SYNDROMES,
    "mrc.sack.m": _names(EvMark),
    "mrc.nack.reason": _names(NackReason),
    "mrc.request.op": _OPS,
    "mrc.response.op": _OPS,
    **{f"mrc.{of}.tsr": {0: "128 ns", 1: "sender's own"} for of in ("write", "probe", "request")},
    **{f"mrc.{of}.ftype": {1: "timestamp"} for of in ("write", "probe", "request")},
}
"""What the values of a field mean."""

HEXADECIMAL = {"opcode", "pkey", "dqp", "va", "rkey", "immediate", "syndrome", "reason", "ev"}
HEXADECIMAL |= {"spdcid", "dpdcid", "bitmap", "vendor_info", "port_status_mask"}
"""The fields that Wireshark shows in hexadecimal."""


def filter_name(header: Header, field: Field) -> str:
    """The name of a field in Wireshark's filters: `mrc.nack.reason`."""
    return f"mrc.{PREFIXES[header]}.{SHORT.get(field.name, field.name)}"


def declarations() -> str:
    """The tables of the dissector."""
    return "".join(f"{line}\n" for line in _lines())


def with_declarations(dissector: str) -> str:
    """The dissector with its tables."""
    return re.sub(
        r"(^-- declarations.*?\n).*?(^-- end\n)",
        lambda match: match[1] + declarations() + match[2],
        dissector,
        flags=re.DOTALL | re.MULTILINE,
    )


def _lines() -> Iterator[str]:
    yield f"local UDP_PORTS = {{ {', '.join(map(str, sorted(UDP_PORTS)))} }}"
    yield f"local ICRC_BYTES = {constants.ICRC_BYTES}"
    yield f"local EV_HALF = 0x{1 << constants.EV_LABEL_SHIFT:x}"
    classes = constants.DscpClasses()
    yield f'local TRIMMED_DSCPS = "{classes.trimmed},{classes.trimmed_lasthop}"'
    yield f"local LOCATOR_BLOCK = 0x{addressing.LOCATOR_BLOCK:x}"
    yield f"local USIDS = {addressing.MAX_USIDS}"
    yield f"local PLANE_UNIT = {1 << addressing.PLANE_SHIFT}"
    yield f"local DT6_USID = 0x{addressing.DT6_USID:x}"
    roles = ", ".join(f'[{role.value}] = "{role.name}"' for role in addressing.Role)
    yield f"local ROLES = {{ {roles} }}"
    yield "local HEADERS = {"
    for header in PREFIXES:
        yield f'  {{ name = "{header.name}", title = "{header.title}", words = {{'
        for word in header.words:
            yield from _word(header, word)
        yield "  } },"
    yield "}"
    yield "local KINDS = {"
    for kind in KINDS:
        opcodes = ", ".join(f"0x{opcode:x}" for opcode in kind.opcodes)
        behind = ", ".join(f'"{header.name}"' for header in kind.headers)
        yield f'  {{ name = "{kind.name}", opcodes = {{ {opcodes} }}, headers = {{ {behind} }} }},'
    yield "}"
    immediate = ", ".join(f"[0x{opcode:x}] = true" for opcode in sorted(IMMEDIATE_OPCODES))
    yield f"local IMMEDIATE_OPCODES = {{ {immediate} }}"


def _word(header: Header, word: tuple[Field, ...]) -> Iterator[str]:
    bits = sum(field.bits for field in word)
    if all(field.reserved for field in word):
        yield f"    {{ bits = {bits} }},"
        return
    yield f"    {{ bits = {bits},"
    below = bits
    for field in word:
        below -= field.bits
        if field.reserved:
            continue
        name = filter_name(header, field)
        mask = "" if field.bits == bits else f", mask = 0x{(1 << field.bits) - 1 << below:x}"
        base = "HEX" if name.rpartition(".")[2] in HEXADECIMAL else "DEC"
        sign = ", signed = true" if field.signed else ""
        form = f"base = base.{base}{sign}"
        meaning = f'meaning = "{field.meaning}",{_values(name)}'
        yield f'      {{ name = "{name}"{mask}, {form}, {meaning} }},'
    yield "    },"


def _values(name: str) -> str:
    if name not in VALUES:
        return ""
    pairs = ", ".join(f'[0x{value:x}] = "{text}"' for value, text in VALUES[name].items())
    return f"\n        values = {{ {pairs} }}"


if __name__ == "__main__":
    DISSECTOR.write_text(with_declarations(DISSECTOR.read_text(encoding="utf-8")), encoding="utf-8")
