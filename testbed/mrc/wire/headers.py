"""The headers that MRC shares with RoCEv2 and UET, and those of a WRITE, each declared once.

Those of the control packets are in `kinds.py`.

The codec takes its formats, shifts and masks from here, and `docs/wire.md` its tables.

`agree` says how many independent public sources have a field at its place, and which: F an FPGA
responder, D a dissector, M a packet generator, N an ns-3 model, K the templates of a tester (order
of fields only), G, Z1, Z2, O, P, T descriptions (P, T: MRC's authors), A the OCP MRC API, U1 a
reading of UEC, I IBTA, R the RFCs.
"""

from typing import Final

from testbed.mrc.wire.header import Field, Header


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
