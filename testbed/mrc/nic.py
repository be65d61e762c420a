"""A NIC, as the configurations of its queue pairs see it."""

from dataclasses import dataclass

from testbed.mrc.config import QpConfig
from testbed.mrc.congestion.nscc_incast import CcProfile
from testbed.mrc.congestion.nscc_uec import UecProfile
from testbed.mrc.entropy import EvProfile
from testbed.mrc.wire.packets import nominal_size


@dataclass(frozen=True, slots=True)
class PortAttributes:
    """A NIC, with what the configurations of all its queue pairs have in common.

    Attributes:
        address: the NIC's inner IPv6 address, 16 bytes.
        mtu: payload bytes of a full packet.
        base_rtt_ns: the round trip time of the longest path without queueing.
        rate_bps: the rate of all ports together.
        dilation: how many times slower than real the clock runs (see `CcProfile.derive`).
        trimming: whether the fabric trims at the last hop what it would drop.
    """

    address: bytes
    mtu: int
    base_rtt_ns: int
    rate_bps: int
    dilation: float = 1.0
    trimming: bool = True

    def qp_config(
        self,
        *,
        qpn: int,
        peer_qpn: int,
        peer_address: bytes,
        ev_profile: EvProfile,
        cwnd: int,
        seed: int = 0,
    ) -> QpConfig:
        """The configuration of a queue pair of this NIC, with defaults for everything else.

        Raises:
            ValueError: a value is out of its range.
        """
        return QpConfig(
            qpn=qpn,
            peer_qpn=peer_qpn,
            local_address=self.address,
            peer_address=peer_address,
            ev_profile=ev_profile,
            base_rtt_ns=self.base_rtt_ns,
            cwnd=cwnd,
            mtu=self.mtu,
            seed=seed,
        )

    def uec_profile(self, path_rtt_ns: int) -> UecProfile:
        """Ultra Ethernet's parameters for a queue pair whose own paths have this base RTT."""
        return UecProfile.derive(
            base_rtt_ns=self.base_rtt_ns,
            path_rtt_ns=path_rtt_ns,
            rate_bps=self.rate_bps,
            mtu=nominal_size(self.mtu, immediate=False, timestamp=True),
            trimming=self.trimming,
            dilation=self.dilation,
        )

    def cc_profile(self, path_rtt_ns: int) -> CcProfile:
        """NSCC's default parameters for a queue pair whose own paths have this base RTT."""
        return CcProfile.derive(
            base_rtt_ns=self.base_rtt_ns,
            path_rtt_ns=path_rtt_ns,
            rate_bps=self.rate_bps,
            mss=self.mtu,
            trimming=self.trimming,
            dilation=self.dilation,
        )
