"""What became of the probes, and how likely that is where suspects lose this or that share."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BACKGROUND = 1e-4
"""Loss of a path on which nothing is ill: none in this fabric; a margin for the machine."""

LOSSES = np.concatenate([np.geomspace(2e-3, 0.5, 28), 1 - np.geomspace(0.45, 1e-6, 12)])
"""The shares that are tried for what a suspect loses."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Probes by path.

    Attributes:
        sent: those whose fate is known.
        lost: how many of these were lost.
    """

    sent: Floats
    lost: Floats

    def healthy(self) -> Floats:
        """Log of every path's delivery where nothing is ill."""
        return healthy(len(self.sent))

    def likelihood(self, log_delivery: Floats) -> float:
        """The log-likelihood (nats) of every path's delivery."""
        arrived = self.sent - self.lost
        return float(self.lost @ _log_loss(log_delivery) + arrived @ log_delivery)

    def best_losses(self, on: Floats, log_delivery: Floats) -> tuple[Floats, Floats]:
        """What each suspect likeliest loses, and by how many nats likelier that is than nothing.

        The part of the probes that arrived is linear in the log of what a suspect delivers; that of
        the lost ones depends on how often their path passes it, which is once or twice.

        Args:
            on: suspects x paths: how often each path passes each.
            log_delivery: of every path, without them.
        """
        own = np.log1p(-LOSSES)
        gains = np.outer(on @ (self.sent - self.lost), own)
        lossy = np.flatnonzero(self.lost)
        passed, without = on[:, lossy], log_delivery[lossy, np.newaxis]
        for times in np.unique(passed[passed > 0]):
            more = _log_loss(without + times * own) - _log_loss(without)
            gains += (passed == times) @ (self.lost[lossy, np.newaxis] * more)
        best = gains.argmax(axis=1)
        return LOSSES[best], gains[np.arange(len(on)), best]


def healthy(paths: int) -> Floats:
    """Log of every path's delivery where nothing is ill."""
    return np.full(paths, np.log1p(-BACKGROUND))


def in_favour(passed: Floats, loss: float, log_delivery: Floats) -> tuple[Floats, Floats]:
    """How much likelier a suspect's being well makes what became of one probe on each path (nats).

    Args:
        passed: how often each path passes it.
        loss: what it would lose, were it ill.
        log_delivery: of every path, without it.

    Returns:
        Of a probe that arrived, and of one that was lost.
    """
    ill = log_delivery + passed * np.log1p(-loss)
    return log_delivery - ill, _log_loss(log_delivery) - _log_loss(ill)


def _log_loss(log_delivery: Floats) -> Floats:
    found: Floats = np.log(-np.expm1(np.minimum(log_delivery, -1e-12)))
    return found
