"""States of a queue pair: InfiniBand's, as the verbs API knows them (IBTA; OCP MRC API).

RESET: new; nothing is sent, arrivals are dropped. INIT: the same, configured. RTR: WRITEs of the
peer are accepted and answered, nothing may be posted. RTS: WRITEs both ways. ERROR: posted WRITEs
are flushed, arrivals are dropped. Each state leads to the next one, and to ERROR and RESET.
"""

from enum import StrEnum
from typing import Final


class QpState(StrEnum):
    """A state of a queue pair."""

    RESET = "RESET"
    INIT = "INIT"
    RTR = "RTR"
    RTS = "RTS"
    ERROR = "ERROR"


class QpStateError(Exception):
    """The queue pair is not in a state that allows this."""


_NEXT: Final = {
    QpState.RESET: QpState.INIT,
    QpState.INIT: QpState.RTR,
    QpState.RTR: QpState.RTS,
}


def may_become(old: QpState, new: QpState) -> bool:
    """Whether a queue pair may be modified from `old` to `new`."""
    return new in (QpState.RESET, QpState.ERROR) or _NEXT.get(old) is new


def takes_arrivals(state: QpState) -> bool:
    """Whether a queue pair in `state` accepts packets and may send."""
    return state in (QpState.RTR, QpState.RTS)
