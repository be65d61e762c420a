"""Eleven packets of one exchange, byte for byte.

A (`fd4d:5243::1`, QPN 0x11) sends to B (`fd4d:5243:1:2::1`, QPN 0x12). B has PSNs 0x100, 0x102 and
0x103; 0x101 was trimmed. They were built from the tables of docs/wire.md, not captured from
hardware. scapy (`scapy.contrib.roce`) has recomputed their iCRCs and lengths.
"""

A = bytes.fromhex("fd4d5243 00000000 00000000 00000001")
B = bytes.fromhex("fd4d5243 00010002 00000000 00000001")

_TO_B = f"{A.hex()} {B.hex()}"
_TO_A = f"{B.hex()} {A.hex()}"

V1_WRITE = bytes.fromhex(
    f"62a00019 00401140 {_TO_B} c0de12b7 00400000 ca30ffff 00000012 90000100 00000000 1a2b0001"
    "00007000 00000000 00001234 0000000d a0a1a2a3 a4a5a6a7 a8a9aaab ac000000 f6bb8eeb"
)
"""WRITE Only, TSETH, AckReq, 13 bytes and 3 of padding."""

V1S_OUTER = bytes.fromhex(f"62a00019 00682940 {A.hex()} 5f000000 12002203 12013202 00000000")
"""The outer header of V1 in SRv6 mode: T0, T1, T0, NIC."""

V2_IMMEDIATE = bytes.fromhex(
    f"64a00019 00381140 {_TO_B} c0de12b7 00380000 cb00ffff 00000012 a0000101 00000001"
    "00007000 00001000 00001234 00000008 c0ffee01 b0b1b2b3 b4b5b6b7 d9f68724"
)
"""WRITE Only with Immediate, a retransmission, no TSETH, AckReq."""

V3_ACK = bytes.fromhex(
    f"6ba00019 001c1140 {_TO_A} c0de12b7 001c0000 d100ffff 00000011 00000100 1f000001 39c91c5a"
)

V4_SACK = bytes.fromhex(
    f"6ba00019 003c1140 {_TO_A} c0de12b7 003c0000 dc00ffff 00000011 00000100 00200003 0019c0de"
    "00120011 00000100 00000001 00000000 00000006 1a2b0002 00000022 017761be"
)
"""ECN seen."""

V5_NACK = bytes.fromhex(
    f"6ba00019 002c1140 {_TO_A} c0de12b7 002c0000 dd00ffff 00000011 00000101 00000100 0021beef"
    "00120011 00000101 20001a2c 51aede32"
)
"""TRIMMED."""

V6_PROBE = bytes.fromhex(
    f"62a00021 00281140 {_TO_B} beef12b7 00280000 de00ffff 00000012 00000000 00000000 00420000"
    "00110012 1a400001 c402d300"
)
"""Reliability probe."""

V7_PROBE_SACK = bytes.fromhex(
    f"6ba00021 003c1140 {_TO_A} beef12b7 003c0000 dc00ffff 00000011 00000100 00020042 0021beef"
    "00120011 00000100 00000001 00000000 00000006 1a400002 00000022 858dbbc5"
)
"""The SACK that answers V6."""

V8_EV_PROBE = bytes.fromhex(
    f"6ba00021 00281140 {_TO_B} beef12b7 00280000 d800ffff 00000002 00000007 00010000 00000000"
    "00000000 1a500001 03e9699e"
)

V9_EV_RESPONSE = bytes.fromhex(
    f"6ba00021 003c1140 {_TO_A} beef12b7 003c0000 d900ffff 00000002 00000007 00040000 00000000"
    "00000000 00000000 00000000 00000000 00000000 1a500000 00000000 bd794822"
)
"""The response to V8."""

V10_PORTS = bytes.fromhex(
    f"62a00019 00281140 {_TO_B} c0de12b7 00280000 d800ffff 00000002 00000008 00000000 0000000b"
    "00000000 1a600001 e3c28b2a"
)
"""Port status update: of four ports the third is down. In the data class, as the source has it."""

VECTORS = {
    "V1": V1_WRITE,
    "V2": V2_IMMEDIATE,
    "V3": V3_ACK,
    "V4": V4_SACK,
    "V5": V5_NACK,
    "V6": V6_PROBE,
    "V7": V7_PROBE_SACK,
    "V8": V8_EV_PROBE,
    "V9": V9_EV_RESPONSE,
    "V10": V10_PORTS,
}
"""The inner packets; V1s is V1 behind `V1S_OUTER`."""
