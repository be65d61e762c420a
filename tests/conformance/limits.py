"""What is not implemented on the data path, and what no source settles."""

from tests.conformance.table import Rule, State

ABSENT = tuple(
    Rule("Not implemented on the data path", rule, agree, here, state=State.ABSENT)
    for rule, agree, here in (
        ("IPv4", "2: G, A", "`mrc.lua` reads it"),
        ("outer header with SRH", "4: AGM, Z1", "`mrc.lua` reads it"),
        ("service time taken out of the RTT", "4: G Z1 M N", "how it travels no source says"),
    )
)

OPEN = tuple(
    Rule("Open: no source settles it", rule, "0: ", here, state=State.OPEN)
    for rule, here in (
        ("how service time travels", "not implemented"),
        ("when a responder sends m = 2", "only in a fault `busy`; a peer's is heeded"),
        (
            "how many answered probes bring an EV back",
            "about as many as its losses call for (ours)",
        ),
        (
            "the number of bytes after which a SACK is sent",
            "32 KiB (ours), a packet counting at least 1 KiB",
        ),
        (
            "how a trimming switch rewrites lengths",
            "IPv6 and UDP lengths are those of what is left",
        ),
        ("the NACK for too many immediates, if there is one", "NAK 61 instead"),
        ("the NAK for an immediate without a posted receive", "63"),
        ("`cc_fl`, `vendor_info`, `type`, `next_header` other than 0", "ignored"),
        (
            "what `spdcid` and `dpdcid` mean",
            "the low halves of sender's and receiver's QPN; ignored",
        ),
        ("the first MSN and RQMSN: 0 (F) or 1 (N)", "0; the receiver takes what comes first"),
        ("the order of the EV's halves in SRv6 mode", "an option"),
        ("the number of the first port in the port mask", "bit 0 (a constant)"),
        ("bytes of the message that sets up a connection", "JSON of our own, with a version"),
    )
)
