"""rtnetlink messages: pyroute2's classes, and what pyroute2 0.9.7 lacks.

pyroute2 knows neither the flavours nor the counters of seg6local routes, and silently drops what it
does not know: a uN route would become a plain End. It turns `encap.red` into `encap`, which would
put a segment routing header on the wire. It also drops size tables (`stab`) of queueing
disciplines. The classes here derive from pyroute2's and leave those unchanged.
"""

from pyroute2.netlink import NLA_F_NESTED, nla, nlmsg
from pyroute2.netlink.rtnl.fibmsg import fibmsg
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import LWTUNNEL_ENCAP_SEG6, LWTUNNEL_ENCAP_SEG6_LOCAL, rtmsg_base
from pyroute2.netlink.rtnl.tcmsg import tcmsg

SEG6_IPTUN_MODE_ENCAP_RED = 3
"""H.Encaps.Red (RFC 8986, section 5.2): linux/seg6_iptunnel.h."""

SEG6_LOCAL_ACTION_END = 1
SEG6_LOCAL_ACTION_END_DT6 = 7
NEXT_CSID = 1 << 4
"""Flavour bit of NEXT-C-SID (RFC 9800): linux/seg6_local.h, SEG6_LOCAL_FLV_OP_NEXT_CSID."""

WITHOUT_COUNTERS = ("IFLA_EXT_MASK", 1 << 3)
"""Attribute of a request for links without their counters, which take longer to gather:
linux/rtnetlink.h, RTEXT_FILTER_SKIP_STATS."""

Message = nlmsg
LinkMessage = ifinfmsg
AddressMessage = ifaddrmsg
NeighbourMessage = ndmsg
RuleMessage = fibmsg


class _Nested(nla):  # type: ignore[misc] # pyroute2 is untyped
    nla_flags = NLA_F_NESTED


class Seg6Encapsulation(_Nested):
    """The encapsulation of a seg6 route: linux/seg6_iptunnel.h, struct seg6_iptunnel_encap."""

    nla_map = ((0, "SEG6_IPTUNNEL_UNSPEC", "none"), (1, "SEG6_IPTUNNEL_SRH", "cdata"))


class Seg6Local(_Nested):
    """The behaviour of a seg6local route: linux/seg6_local.h."""

    nla_map = (
        (0, "SEG6_LOCAL_UNSPEC", "none"),
        (1, "SEG6_LOCAL_ACTION", "uint32"),
        (3, "SEG6_LOCAL_TABLE", "uint32"),
        (10, "SEG6_LOCAL_COUNTERS", "counters"),
        (11, "SEG6_LOCAL_FLAVORS", "flavors"),
    )

    class counters(_Nested):  # noqa: N801 - pyroute2 looks it up by this name
        """Packets, bytes and errors of one SID."""

        nla_map = (
            ("SEG6_LOCAL_CNT_UNSPEC", "none"),
            ("SEG6_LOCAL_CNT_PAD", "none"),
            ("SEG6_LOCAL_CNT_PACKETS", "uint64"),
            ("SEG6_LOCAL_CNT_BYTES", "uint64"),
            ("SEG6_LOCAL_CNT_ERRORS", "uint64"),
        )

    class flavors(_Nested):  # noqa: N801 - pyroute2 looks it up by this name
        """Flavours of an End behaviour, with the lengths of a compressed SID's parts in bits."""

        nla_map = (
            ("SEG6_LOCAL_FLV_UNSPEC", "none"),
            ("SEG6_LOCAL_FLV_OPERATION", "uint32"),
            ("SEG6_LOCAL_FLV_LCBLOCK_BITS", "uint8"),
            ("SEG6_LOCAL_FLV_LCNODE_FN_BITS", "uint8"),
        )


class RouteMessage(rtmsg_base, nlmsg):  # type: ignore[misc] # pyroute2 is untyped
    """A route message that knows seg6local's flavours and counters, and every mode of seg6."""

    encaps = {  # noqa: RUF012 - as in pyroute2
        **rtmsg_base.encaps,
        LWTUNNEL_ENCAP_SEG6: Seg6Encapsulation,
        LWTUNNEL_ENCAP_SEG6_LOCAL: Seg6Local,
    }


class QdiscMessage(tcmsg):  # type: ignore[misc] # pyroute2 is untyped
    """A message about a queueing discipline or its class, with size tables."""

    nla_map = (*tcmsg.nla_map[:-1], ("TCA_STAB", "stab"))
    _nlmsg_base__compiled_nla = False  # inherited as true once pyroute2's class has been used

    class stab(_Nested):  # noqa: N801 - pyroute2 looks it up by this name
        """Size table: the bytes charged for a packet (linux/pkt_sched.h, tc_sizespec)."""

        nla_map = (("TCA_STAB_UNSPEC", "none"), ("TCA_STAB_BASE", "base"))

        class base(nla):  # type: ignore[misc] # noqa: N801 - pyroute2 looks it up by this name
            """struct tc_sizespec."""

            fields = (
                ("cell_log", "B"),
                ("size_log", "B"),
                ("cell_align", "h"),
                ("overhead", "i"),
                ("linklayer", "I"),
                ("mpu", "I"),
                ("mtu", "I"),
                ("tsize", "I"),
            )
