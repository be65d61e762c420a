"""Every header of the wire format, declared once: its fields, what they mean, who agrees on them.

The codec takes its formats, shifts and masks from here, and `docs/wire.md` its tables.

`agree` says how many independent public sources have a field at its place, and which: F an FPGA
responder, D a dissector, M a packet generator, N an ns-3 model, K the templates of a tester (order
of fields only), G, Z1, Z2, O, P, T descriptions (P, T: MRC's authors), A the OCP MRC API, U1 a
reading of UEC, I IBTA, R the RFCs.
"""

from typing import Final

from testbed.mrc.wire.header import Field, Header


def _reserved(bits: int, agree: str = "") -> Field:
    return Field("", bits, agree=agree)


def _kind(agree: str) -> tuple[Field, Field]:
    """The first nine bits of every control header of MRC."""
    return (
        Field("type", 4, "0; ignored (mirrors UET's)", agree),
        Field("next_header", 5, "0; ignored (mirrors UET's)", agree),
    )


def _dcids(agree: str) -> tuple[Field, Field]:
    return (
        Field("spdcid", 16, "low 16 bits of the sender's QPN; ignored", agree),
        Field("dpdcid", 16, "low 16 bits of the receiver's QPN; ignored", agree),
    )


def _timestamp(agree: str) -> tuple[tuple[Field, ...], ...]:
    return (
        (Field("tx_timestamp", 16, "when the packet was sent, in the unit that tsr says", agree),),
        (
            Field("tsr", 1, "unit: 0 is 128 ns, 1 is the sender's own", agree),
            _reserved(11, agree),
            Field("ftype", 4, "1: the timestamp is one", agree),
        ),
    )


_FKMN, _FDMN, _FDM = "4: FKMN (zeros)", "4: FDMN, K", "3: FDM, K"

IPV6: Final = Header(
    "IPv6",
    "inner IPv6 header",
    "3: PGM",
    (
        (
            Field("version", 4, "6", "R"),
            Field("dscp", 6, "traffic class: the operator's values", "3: GM Z2"),
            Field("ecn", 2, "2: capable (ECT(0)), 3: congestion seen", "R"),
            _reserved(4, "3: PGM"),
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
    _FDMN,
    (
        (Field("opcode", 8, "which packet it is", "4: DMNK"),),
        (
            _reserved(2, "SE and M, in the one order (DN, I) or the other (FMK)"),
            Field("pad", 2, "bytes of zeros behind the payload", "5: FDMNK"),
            Field("version", 4, "0; others are refused", "5: FDMNK"),
        ),
        (Field("pkey", 16, "FFFF; ignored", "3: FKN"),),
        (
            _reserved(8, "4: FDMN, I; the iCRC masks it"),
            Field("dqp", 24, "QPN at the receiver; 2 is the endpoint itself", "4: FDMN"),
        ),
        (
            Field("ack_request", 1, "AckReq: asks for a SACK and an ACK", "5: FDMNK"),
            _reserved(1, "3: FDM, K"),
            Field("rtx", 1, "a retransmission; a SACK echoes it", "3: FDM, K; echo 1: M, U1"),
            Field("ts", 1, "a TSETH follows the METH", "3: FDM, K"),
            _reserved(4, "3: FDM, K"),
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
    "TSETH", "timestamp, where BTH.ts is set", "5: FDMGK", _timestamp("3: DMN, K")
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
    _FDMN,
    ((Field("immediate", 32, "for the program at the receiver", _FDMN),),),
)

AETH: Final = Header(
    "AETH",
    "acknowledgement",
    "4: FDMN, K, I",
    (
        (
            Field(
                "syndrome",
                8,
                "1F: ACK (any 00 to 1F is one); NAK: 61 invalid request, 62 remote access error, "
                "63 remote operational error",
                "ACK 2: N, Z1; NAK: N, O, Z2, I",
            ),
            Field("msn", 24, "messages completed at the responder", "F, K, I"),
        ),
    ),
)

SETH: Final = Header(
    "SETH",
    "selective acknowledgement",
    _FDMN,
    (
        (
            *_kind(_FKMN),
            Field(
                "m",
                2,
                "mark on the EV: 0 none, 1 skip once, 2 always skip; 3 is read as 0",
                "5: FDMNK",
            ),
            _reserved(3),
            Field("pr", 1, "1: answers a reliability probe", "5: FDMNK"),
            _reserved(1),
        ),
        (
            Field(
                "ack_psn_offset",
                16,
                "PSN of the packet that is answered, from cack_psn; where pr is 1 the probe's id",
                _FDMN,
                signed=True,
            ),
        ),
        (Field("entropy", 32, "EV of the packet that is answered", _FDMN),),
        *((field,) for field in _dcids("place 4: FDMN, K; meaning open")),
        (_reserved(8, _FDMN), Field("cack_psn", 24, "all PSNs up to it have arrived", _FDMN)),
        (
            Field("cc_type", 4, "0: CC_STATE is as below; with others it is not read", "4: FDMN"),
            Field("cc_fl", 4, "0; ignored", "4: FDMN"),
        ),
        (
            Field(
                "mpr",
                8,
                "responder window in units of 128 PSNs; 0, and ignored, unless both ends agreed",
                "place 4: FDMN, K; 0 2: GN",
            ),
        ),
        (
            Field(
                "sack_offset",
                16,
                "first PSN of the bitmap, from cack_psn",
                _FDMN,
                signed=True,
            ),
        ),
        (
            Field(
                "bitmap",
                64,
                "bit i, from the least significant: PSN cack_psn + sack_offset + i has arrived",
                "place 4: FDMN; order 2: MN",
            ),
        ),
    ),
)

CC_STATE: Final = Header(
    "CC_STATE",
    "congestion state, behind the SETH",
    _FDMN,
    (
        (Field("tx_timestamp", 16, "of the packet that is answered; 0 if it had none", _FDMN),),
        (
            _reserved(1),
            Field("ooo_count", 15, "packets received above cack_psn", "4: FDMN, K, O"),
        ),
        (
            Field("restore_cwnd", 1, "return to the window before the penalty", _FDMN),
            Field("rcv_cwnd_pen", 7, "penalty of a busy receiver, 0 to 127", _FDMN),
            Field(
                "rcvd_bytes",
                24,
                "bytes of new, untrimmed data packets (UDP length + 40 each), in units of 256, "
                "rounded up, modulo 2^24",
                "place 4: FDMN, K; rounded up 3: MN U1; UDP length + 40 2: M U1",
            ),
        ),
    ),
)

NETH: Final = Header(
    "NETH",
    "negative acknowledgement",
    _FDMN,
    (
        (*_kind(_FKMN), _reserved(7, "3: FMN")),
        (
            Field(
                "nack_reason",
                8,
                "01 TRIMMED, 02 TRIMMED_LASTHOP, 06 NO_BITMAP, 07 NO_PKT_BUFFER, 0A NO_RESOURCE, "
                "0B PSN_OOR_WINDOW, 19 UNEXP_EVENT; others are refused",
                "5: FDMNK",
            ),
        ),
        (Field("vendor_info", 8, "0; ignored", _FDMN),),
        (Field("entropy", 32, "EV of the refused packet", _FDMN),),
        *((field,) for field in _dcids("place 4: FDMN, K; meaning open")),
        (_reserved(8, _FDMN), Field("nack_psn", 24, "PSN of the refused packet", _FDMN)),
        (
            Field("cc_type", 4, "2; ignored", "3: FMN"),
            Field("cc_fl", 4, "0; ignored", "3: FMN"),
        ),
        (_reserved(8, _FDMN),),
        (Field("tx_timestamp", 16, "of the refused packet; 0 if it had none", _FDMN),),
    ),
)

PETH: Final = Header(
    "PETH",
    "reliability probe",
    _FDMN,
    (
        (*_kind(_FDMN), _reserved(7, _FDMN)),
        (_reserved(8, _FDMN),),
        (Field("vendor_info", 8, "0; ignored", _FDMN),),
        (Field("probe_id", 16, "the SACK that answers returns it", _FDMN),),
        (_reserved(16, "3: FMN, K"),),
        *((field,) for field in _dcids(_FDMN)),
        *_timestamp("3: FDM, K; N: 0001"),
    ),
)

ERTH: Final = Header(
    "ERTH",
    "endpoint request, to QPN 2",
    _FDMN,
    (
        (
            *_kind(_FDM),
            _reserved(5, _FDM),
            Field("op", 2, "0 PORT_STATUS_UPDATE, 1 EV_PROBE; others are refused", _FDM),
        ),
        (_reserved(8, _FDM),),
        (Field("vendor_info", 8, "0; ignored", _FDM),),
        (
            Field(
                "port_status_mask",
                32,
                "bit p: port p is reachable, from 0; only with op 0",
                "place 3: FDM, K; 1 is reachable 2: MN",
            ),
        ),
        (_reserved(32, _FDM),),
        *_timestamp("3: FDM, K; N has the field"),
    ),
)

EETH: Final = Header(
    "EETH",
    "endpoint response, to QPN 2",
    _FDMN,
    (
        (
            *_kind(_FDM),
            _reserved(3, _FDM),
            Field("op", 2, "as in the request; the id decides on receipt", "FD; M: bits 5:4"),
            _reserved(2, _FDM),
        ),
        (_reserved(16, _FDM),),
        *((_reserved(64, _FDM),),) * 3,
        (Field("tx_timestamp", 16, "that of the request", "3: FDM, K; N"),),
        (_reserved(16, _FDM),),
        (_reserved(32, _FDM),),
    ),
)
