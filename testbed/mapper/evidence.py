"""How many probes were lost on each path, and how likely that is for given loss rates."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BACKGROUND = 1e-4
"""Assumed loss of a healthy path: the fabric loses nothing, but a busy machine may."""

LOSSES = np.concatenate([np.geomspace(2e-3, 0.5, 28), 1 - np.geomspace(0.45, 1e-6, 12)])
"""The loss rates that are tried for a suspect."""


@dataclass(frozen=True, slots=True)
class ProbeCounts:
    """Counts of probes by path.

    Attributes:
        sent: probes whose outcome is known.
        lost: how many of them were lost.
    """

    sent: Floats
    lost: Floats

    def log_likelihood(self, log_delivery: Floats) -> float:
        """The log-likelihood (nats) of the counts, given the log of every path's delivery rate."""
        arrived = self.sent - self.lost
        return float(self.lost @ _log_loss(log_delivery) + arrived @ log_delivery)

    def best_losses(self, crossings: Floats, log_delivery: Floats) -> tuple[Floats, Floats]:
        """The likeliest loss rate of each suspect, and its gain in log-likelihood over no loss.

        The term of the probes that arrived is linear in the log of a suspect's delivery rate. The
        term of the lost ones depends on how often their path crosses it: once or twice.

        Args:
            crossings: suspects x paths: how often each path crosses each suspect.
            log_delivery: log of every path's delivery rate without these suspects.
        """
        log_deliveries = np.log1p(-LOSSES)
        gains = np.outer(crossings @ (self.sent - self.lost), log_deliveries)
        lossy = np.flatnonzero(self.lost)
        on_lossy, others = crossings[:, lossy], log_delivery[lossy, np.newaxis]
        for times in np.unique(on_lossy[on_lossy > 0]):
            more = _log_loss(others + times * log_deliveries) - _log_loss(others)
            gains += (on_lossy == times) @ (self.lost[lossy, np.newaxis] * more)
        best = gains.argmax(axis=1)
        return LOSSES[best], gains[np.arange(len(crossings)), best]


def log_delivery_rates(paths: int, culprits: Iterable[tuple[Floats, float]] = ()) -> Floats:
    """The log of every path's delivery rate.

    Args:
        paths: how many paths there are.
        culprits: of each, how often every path crosses it, and its loss rate.
    """
    log_delivery = np.full(paths, np.log1p(-BACKGROUND))
    for crossings, loss in culprits:
        log_delivery = log_delivery + crossings * np.log1p(-loss)
    return log_delivery


def log_odds_healthy(crossings: Floats, loss: float, log_delivery: Floats) -> tuple[Floats, Floats]:
    """By how much one probe on each path speaks for a suspect being healthy, in nats.

    Args:
        crossings: how often each path crosses the suspect.
        loss: its loss rate if it is faulty.
        log_delivery: log of every path's delivery rate without the suspect.

    Returns:
        For a probe that arrived, and for a probe that was lost (negative).
    """
    faulty = log_delivery + crossings * np.log1p(-loss)
    return log_delivery - faulty, _log_loss(log_delivery) - _log_loss(faulty)


def _log_loss(log_delivery: Floats) -> Floats:
    log_loss: Floats = np.log(-np.expm1(np.minimum(log_delivery, -1e-12)))
    return log_loss
