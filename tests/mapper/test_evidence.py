"""The quick way to weigh a suspect, held against the plain one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.mapper.inference import LOSSES, Incidence, ProbeCounts, log_delivery_rates
from testbed.mapper.prober import probe_round
from testbed.model.fabric.topology import Topology

FABRIC = Topology(name="x", planes=2, t0_per_plane=2, t1_per_plane=3, hosts_per_t0=2)
INCIDENCE = Incidence()
for path in (path for number in range(12) for path in probe_round(FABRIC, number, seed=1)):
    INCIDENCE.number(path)


@given(st.integers(0, 2**32), st.floats(0, 1), st.floats(0, 1))
def test_a_suspect_is_weighed_by_all_paths(seed: int, lossy: float, share: float) -> None:
    """By those that lost nothing, too, and beside another one that is ill."""
    chance = np.random.default_rng(seed)
    sent = chance.integers(0, 20, len(INCIDENCE)).astype(float)
    lost = chance.binomial(sent.astype(int), share * (chance.random(len(sent)) < lossy))
    evidence = ProbeCounts(sent, lost.astype(float))
    other, *rows = chance.integers(0, len(INCIDENCE.suspects), 6)
    base = log_delivery_rates(len(INCIDENCE)) + INCIDENCE.counts[other] * np.log1p(-0.1)
    on = INCIDENCE.counts[rows]
    for row, loss, gain in zip(on, *evidence.best_losses(on, base), strict=True):
        plain = [evidence.log_likelihood(base + np.log1p(-share) * row) for share in LOSSES]
        assert gain == pytest.approx(max(plain) - evidence.log_likelihood(base), abs=1e-6)
        assert plain[LOSSES.tolist().index(loss)] == pytest.approx(max(plain), abs=1e-6)
