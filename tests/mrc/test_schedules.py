"""Random networks, workloads and faults: whatever happens, WRITEs end as the verbs promise."""

from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.mrc import NEVER, CcProfile, CompletionStatus, MessageDelivered, Nscc, Window
from testbed.mrc.config import RecoveryProbe
from testbed.mrc.wire.kinds import UDP_PORTS, WireOptions
from tests.drawn import schedules

from .harness import MS, RKEY, VA, Network, PathModel, S, make_profile

MTU = 256


@st.composite
def path_models(draw: st.DrawFn) -> PathModel:
    """A path that is sometimes bad in any way, but never dead for good."""
    start = draw(st.integers(0, 600)) * MS
    return PathModel(
        delay_ns=draw(st.integers(40, 120)) * MS,
        jitter_ns=draw(st.sampled_from([0, 0, 5, 40])) * MS,
        loss=draw(st.sampled_from([0.0, 0.0, 0.01, 0.3])),
        duplicate=draw(st.sampled_from([0.0, 0.0, 0.1])),
        corrupt=draw(st.sampled_from([0.0, 0.0, 0.05])),
        mark=draw(st.sampled_from([0.0, 0.0, 0.2, 1.0])),
        trim=draw(st.sampled_from([0.0, 0.0, 0.1])),
        dead=draw(st.sampled_from([[], [], [(start, start + 300 * MS)], [(start, start + 2 * S)]])),
        dead_direction=draw(st.sampled_from([None, 0, 1])),
    )


@st.composite
def networks(draw: st.DrawFn, evs: list[int]) -> dict[int, PathModel]:
    """Paths that are sometimes bad, or of which all but one may die for good."""
    paths = {ev: draw(path_models()) for ev in evs}
    if draw(st.booleans()):
        spared = draw(st.sampled_from(evs))
        for ev, path in paths.items():
            if ev != spared and draw(st.booleans()):
                paths[ev] = replace(path, dead=[(draw(st.integers(0, 600)) * MS, NEVER)])
    return paths


def window() -> Window:
    """A small one, so that it matters."""
    profile = CcProfile.derive(base_rtt_ns=130 * MS, rate_bps=5e5, mss=MTU, dilation=1e4)
    return Window(lambda: Nscc(profile))


OPTIONS = st.fixed_dictionaries(
    {
        "timestamps": st.booleans(),
        "nack_beyond": st.booleans(),
        "recovery_probe": st.sampled_from(RecoveryProbe),
        "wire": st.builds(WireOptions, st.sampled_from(sorted(UDP_PORTS))),
    }
)
"""What sources disagree about, and TSETHs or none."""


@settings(max_examples=schedules(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    data=st.data(),
    planes=st.integers(1, 4),
    active=st.integers(1, 3),
    backups=st.integers(0, 2),
    sizes=st.lists(st.integers(0, 12_000), min_size=1, max_size=12),
    back_sizes=st.lists(st.integers(0, 3000), max_size=4),
    first_psn=st.sampled_from([0, 5, (1 << 24) - 20]),
    mpr=st.sampled_from([1, 8]),
    options=OPTIONS,
    nscc=st.booleans(),
    flaps=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3)), max_size=4),
    seed=st.integers(0, 1 << 16),
)
def test_everything_arrives(
    data: st.DataObject,
    planes: int,
    active: int,
    backups: int,
    sizes: list[int],
    back_sizes: list[int],
    first_psn: int,
    mpr: int,
    options: dict[str, Any],
    nscc: bool,
    flaps: list[tuple[int, int]],
    seed: int,
) -> None:
    """Every byte arrives, completions are exact and in order, and nothing is sent without end."""
    profile = make_profile(planes, active, backups)
    paths = data.draw(networks([entry.ev for entry in profile.entries]))
    network = Network(
        profile,
        seed=seed,
        paths=paths,
        cwnd=40 * MTU,
        mtu=MTU,
        first_psn=first_psn,
        mpr=mpr,
        exponential_retries=12,
        congestion=window if nscc else None,
        **options,
    )
    rng = Random(seed)
    posted: tuple[list[int], list[int]] = (sizes, back_sizes)
    expected = (bytearray(1 << 20), bytearray(1 << 20))
    for side in (0, 1):
        va = 0
        for wr_id, size in enumerate(posted[side]):
            payload = rng.randbytes(size)
            network.qps[side].post_write(wr_id, memoryview(payload), VA + va, RKEY)
            expected[1 - side][va : va + size] = payload
            va += size + 7
    for number, (side, plane) in enumerate(flaps):
        network.run((100 + 100 * number) * MS)
        network.qps[side].port_changed(plane, up=False, now_ns=network.now_ns)
        network.run((150 + 100 * number) * MS)
        network.qps[side].port_changed(plane, up=True, now_ns=network.now_ns)
    network.run(
        300 * S,
        lambda: all(len(network.completions[side]) == len(posted[side]) for side in (0, 1)),
    )
    for side in (0, 1):
        completions = network.completions[side]
        assert [completion.wr_id for completion in completions] == list(range(len(posted[side])))
        assert {completion.status for completion in completions} <= {CompletionStatus.SUCCESS}
        assert [completion.length for completion in completions] == posted[side]
        assert network.buffers[side] == expected[side]
        delivered = [e for e in network.events[1 - side] if isinstance(e, MessageDelivered)]
        assert [event.message for event in delivered] == list(range(len(posted[side])))
        assert [event.length for event in delivered] == posted[side]
        counters = network.qps[side].counters
        packets = sum(max(1, -(-size // MTU)) for size in posted[side])
        assert counters.data_sent == packets + counters.retransmitted
        assert counters.retransmitted <= 2 * packets + 20
        assert counters.lost >= counters.spurious
        assert network.qps[side].flight == 0
