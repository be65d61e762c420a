"""What sources disagree about on the wire, each an option with the default that we recommend."""

from dataclasses import dataclass
from typing import Final

from testbed.mrc.constants import OTHER_UDP_PORT, ROCE_UDP_PORT


@dataclass(frozen=True, slots=True)
class WireOptions:
    """How the packets of an endpoint are written where sources disagree.

    Attributes:
        udp_port: the UDP destination port to send to, 4791 or 4971; both are accepted.
        label_first: whether the field `entropy` of SACK and NACK has the flow label's half of an EV
            first, as in ECMP mode (two sources), or the UDP port's (one source, structured mode).
            Both ends must agree on it.
        sealed: whether the iCRC of data packets is computed; otherwise zeros stand in its place.
            Only for a simulator, which hands over what arrives undamaged without reading it.

    Raises:
        ValueError: the port is another one.
    """

    udp_port: int = ROCE_UDP_PORT
    label_first: bool = True
    sealed: bool = True

    def __post_init__(self) -> None:
        """Refuse a port that no peer accepts."""
        if self.udp_port not in UDP_PORTS:
            raise ValueError(f"udp_port must be 4791 or 4971, not {self.udp_port}")


UDP_PORTS: Final = frozenset((ROCE_UDP_PORT, OTHER_UDP_PORT))
"""The UDP destination ports that are accepted."""

DEFAULT_OPTIONS: Final = WireOptions()
