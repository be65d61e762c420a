"""A seeded toy model that writes the records of a run, with the truth known by construction.

Each flow sends at an even pace, round and round its active EVs. A faulty link swallows what is sent
over it; a fixed time after the fault the EVs through it leave the active set and backups of
the same plane take over; what was lost is declared lost a fixed time after it was sent, and resent
in the next slot of the sender. There is no congestion and no noise but a seeded jitter.
"""

import json
import random
import shutil
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from testbed.model.fabric.addressing import links_of_path
from testbed.model.fabric.ev_set import EvChoice, choose_evs
from testbed.model.fabric.names import directions_of
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.scenario import Scenario
from testbed.model.units import NS_PER_S
from testbed.results.records import (
    ARRIVALS,
    COMPLETIONS,
    EV_EVENTS,
    LOSSES,
    QP,
    TRANSMISSIONS,
    Recorder,
    raw_path,
    write_tables,
)

T0_NS = 5_000_000_000_000
PAYLOAD = 4096
LINK = "p0_t0_0--p0_t1_1"


@dataclass(frozen=True, slots=True)
class Failure:
    """A blackhole to inject; times in seconds, `detect` and `declare` after fault or sending."""

    target: str = LINK
    at: float = 4.0
    until: float | None = 7.0
    detect: float | None = 0.1834
    returns: float = 0.5
    effective: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    topology: Topology = field(
        default_factory=lambda: Topology(
            name="clos-4plane", planes=4, t0_per_plane=2, t1_per_plane=4, hosts_per_t0=4
        )
    )
    pairs: tuple[tuple[str, str], ...] = (("h0", "h4"), ("h4", "h0"))
    failures: tuple[Failure, ...] = (Failure(),)
    duration: float = 10.0
    stops_at: float | None = None
    seed: int = 1
    jitter: float = 0.0005
    load: float = 0.99
    declare: float = 0.18
    spurious: tuple[float, ...] = ()
    backups: float = 0.25
    lag_ns: int = 900_000
    unexplained_drops: int = 0
    bytes_corrupted: int = 0
    bytes_under_way: int = 0
    bytes_unacknowledged: int = 0


@dataclass(slots=True)
class Truth:
    """What happened to one flow, as plain lists, for expectations to be computed naively.

    `sent`: (t, ev, seq, retransmitted); `arrived`: (t, seq, new bytes), in order of time.
    """

    evs: tuple[EvChoice, ...]
    ports_bps: float
    spacing: float
    sent: list[tuple[float, int, int, bool]] = field(default_factory=list)
    arrived: list[tuple[float, int, int]] = field(default_factory=list)
    lost: list[tuple[float, int, int]] = field(default_factory=list)

    def through(self, topology: Topology, src: str, dst: str, target: str) -> set[int]:
        """The EVs that cross a link."""
        a, b = topology.nodes[src], topology.nodes[dst]
        return {
            ev.value
            for ev in self.evs
            if target in {link.name for link in links_of_path(topology, a, b, ev.path)}
        }


def ns(t: float) -> int:
    """Seconds of the run on CLOCK_MONOTONIC in ns."""
    return T0_NS + round(t * NS_PER_S)


def generate(directory: Path, plan: Plan) -> dict[int, Truth]:
    """Write the records of a run into a directory; return the truth by flow."""
    template, truths = _generated(plan)
    shutil.copytree(template.name, directory, dirs_exist_ok=True)
    return truths


@lru_cache(maxsize=8)
def _generated(plan: Plan) -> tuple[TemporaryDirectory[str], dict[int, Truth]]:
    """A directory with the records of a run, which tests copy: many have the same plan."""
    template = TemporaryDirectory()
    directory, raw = Path(template.name), Path(template.name, "raw")
    raw.mkdir()
    truths = {i: _flow(raw, plan, i, *pair) for i, pair in enumerate(plan.pairs)}
    write_tables(raw, directory, T0_NS)
    shutil.rmtree(raw)
    _write_description(directory, plan, truths)
    return template, truths


def _flow(raw: Path, plan: Plan, flow: int, src: str, dst: str) -> Truth:
    topology = plan.topology
    evs = choose_evs(
        topology, *_ends(topology, src, dst), evs=None, backups=plan.backups, seed=plan.seed
    )
    attainable = topology.planes * topology.port_rate_bps * PAYLOAD / topology.wire_bytes * 0.995
    truth = Truth(evs, attainable, PAYLOAD * 8 / (attainable * plan.load))
    with Recorder(raw_path(raw, f"{src}-{flow}", EV_EVENTS), EV_EVENTS) as events:
        changes = _ev_changes(plan, truth, src, dst)
        for t, ev, old, new, active, reason in changes:
            plane = next(chosen.path.plane for chosen in evs if chosen.value == ev)
            events.append(ns(t), flow, plane, ev, old, new, active, reason)
    _packets(plan, truth, changes, src, dst)
    _record(raw, plan, flow, src, dst, truth)
    return truth


Change = tuple[float, int, str, str, bool, str]


def _ends(topology: Topology, src: str, dst: str) -> tuple[Node, Node]:
    return topology.nodes[src], topology.nodes[dst]


def _ev_changes(plan: Plan, truth: Truth, src: str, dst: str) -> list[Change]:
    changes: list[Change] = [(-0.5, ev.value, "", "GOOD", ev.active, "start") for ev in truth.evs]
    for failure in plan.failures:
        if failure.detect is None or not failure.effective:
            continue
        through = truth.through(plan.topology, src, dst, failure.target)
        for i, ev in enumerate(e for e in truth.evs if e.value in through and e.active):
            gone = failure.at + failure.detect + i * 0.01
            spare = [
                e
                for e in truth.evs
                if e.path.plane == ev.path.plane and not e.active and e.value not in through
            ]
            changes.append((gone, ev.value, "GOOD", "ASSUMED_BAD", False, "loss"))
            if spare:
                changes.append((gone, spare[0].value, "GOOD", "GOOD", True, "substitute"))
            if failure.until is None:
                continue
            back = failure.until + failure.returns + i * 0.01
            if spare:
                changes.append((back, spare[0].value, "GOOD", "GOOD", False, "owner returned"))
            changes.append((back, ev.value, "ASSUMED_BAD", "GOOD", True, "probes answered"))
    return sorted(changes, key=lambda change: change[0])


def _packets(plan: Plan, truth: Truth, changes: Sequence[Change], src: str, dst: str) -> None:
    noise = random.Random(plan.seed)
    one_way = plan.topology.one_way_ns(3) / NS_PER_S
    dead = [
        (f.at, f.until or plan.duration, truth.through(plan.topology, src, dst, f.target))
        for f in plan.failures
        if f.effective
    ]
    pending = deque(changes)
    active: list[int] = []
    resend: deque[tuple[float, int]] = deque()
    falsely = deque(plan.spurious)
    placed: set[int] = set()
    arrivals = []
    cursor, seq, slot = 0, 0, 0
    end = plan.duration if plan.stops_at is None else plan.stops_at
    while (t := slot * truth.spacing) < end:
        slot += 1
        while pending and pending[0][0] <= t:
            _, ev, _, _, is_active, _ = pending.popleft()
            if is_active and ev not in active:
                active.append(ev)
            elif not is_active and ev in active:
                active.remove(ev)
        cursor += 1
        ev = active[cursor % len(active)]
        again = bool(resend) and resend[0][0] <= t
        number = resend.popleft()[1] if again else seq
        seq += not again
        truth.sent.append((t, ev, number, again))
        if any(start <= t < stop and ev in through for start, stop, through in dead):
            truth.lost.append((t, ev, number))
            resend.append((t + plan.declare, number))
            continue
        arrivals.append((t + one_way + noise.random() * plan.jitter, ev, number, again))
        if falsely and t >= falsely[0]:
            falsely.popleft()
            truth.lost.append((t, ev, number))
            resend.append((t + plan.declare, number))
    for t, _, number, _ in sorted(arrivals):
        truth.arrived.append((t, number, 0 if number in placed else PAYLOAD))
        placed.add(number)


def _record(raw: Path, plan: Plan, flow: int, src: str, dst: str, truth: Truth) -> None:
    plane = {ev.value: ev.path.plane for ev in truth.evs}
    sender, receiver = f"{src}-{flow}", f"{dst}-{flow}"
    last_sent: dict[int, tuple[int, bool]] = {}
    with Recorder(raw_path(raw, sender, TRANSMISSIONS), TRANSMISSIONS) as out:
        for t, ev, seq, again in truth.sent:
            out.append(ns(t), flow, plane[ev], ev, seq, PAYLOAD, again)
    gone = {(t, seq) for t, _, seq in truth.lost}
    true_losses = _swallowed(plan, truth, src, dst)
    with Recorder(raw_path(raw, sender, LOSSES), LOSSES) as out:
        for t, ev, seq in truth.lost:
            out.append(ns(t + plan.declare), flow, plane[ev], ev, seq, ns(t), False)
            if (t, seq) not in true_losses:
                late = ns(t + plan.declare + 0.05)
                out.append(late, flow, plane[ev], ev, seq, ns(t), True)
    arrivals = iter(truth.arrived)
    flights = [(t, ev, seq, again) for t, ev, seq, again in truth.sent if (t, seq) not in gone]
    flights += [(t, ev, seq, False) for t, ev, seq in truth.lost if (t, seq) not in true_losses]
    for _, ev, seq, again in sorted(flights):
        last_sent.setdefault(seq, (ev, again))
    delivered, missing = set(), 0
    message, per_message = 0, 256
    done = Recorder(raw_path(raw, receiver, COMPLETIONS), COMPLETIONS)
    with done, Recorder(raw_path(raw, receiver, ARRIVALS), ARRIVALS) as out:
        for t, seq, new in arrivals:
            ev, again = last_sent[seq]
            out.append(ns(t), flow, plane[ev], ev, seq, new, again)
            delivered.add(seq)
            while missing in delivered:
                missing += 1
                if missing % per_message == 0:
                    done.append(ns(t), flow, message, per_message * PAYLOAD, True)
                    message += 1
    with Recorder(raw_path(raw, sender, QP), QP) as out:
        for i in range(int(plan.duration / 0.05)):
            out.append(ns(i * 0.05), flow, 900_000, 620_000, 131_000_000)


def _swallowed(plan: Plan, truth: Truth, src: str, dst: str) -> set[tuple[float, int]]:
    swallowed = set()
    for failure in plan.failures:
        through = truth.through(plan.topology, src, dst, failure.target)
        stop = failure.until or plan.duration
        swallowed |= {
            (t, seq)
            for t, ev, seq in truth.lost
            if failure.effective and ev in through and failure.at <= t < stop
        }
    return swallowed


def _step(second: float, **state: object) -> dict[str, object]:
    return {"requested_ns": ns(second), "after_ns": ns(second), "by_ns": ns(second), "state": state}


def _steps(failure: Failure) -> list[dict[str, object]]:
    begun = [_step(failure.at, blackhole=True)] if failure.effective else []
    return begun if failure.until is None else [*begun, _step(failure.until)]


def _write_description(directory: Path, plan: Plan, truths: dict[int, Truth]) -> None:
    timeline = [
        {
            "kind": "blackhole",
            "target": f.target,
            "at": f"{f.at} s",
            "for": f"{(f.until or plan.duration) - f.at} s",
        }
        for f in plan.failures
    ]
    scenario = Scenario.model_validate(
        {
            "name": "link-failure",
            "description": "One pair at full rate; a link swallows everything, then heals.",
            "topology": plan.topology,
            "seed": plan.seed,
            "duration": f"{plan.duration} s",
            "workload": {"pairs": [plan.pairs[0]], "bidirectional": len(plan.pairs) > 1},
            "timeline": timeline,
        }
    )
    manifest = {
        "scenario": scenario.model_dump(mode="json", by_alias=True),
        "versions": {"testbed": "0.1.0"},
        "kernel": "6.18.0 <synthetic>",
    }
    flows = [
        {
            "flow": i,
            "src": src,
            "dst": dst,
            "transport": "mrc",
            "ports_bps": truth.ports_bps,
            "bytes_sent": len(truth.arrived) * PAYLOAD,
            "bytes_completed": len(truth.arrived) * PAYLOAD - plan.bytes_unacknowledged,
            "bytes_verified": len(truth.arrived) * PAYLOAD - plan.bytes_corrupted,
            "bytes_lost": plan.bytes_under_way,
            "bytes_under_way": plan.bytes_under_way,
            "bytes_corrupted": plan.bytes_corrupted,
            "packets_sent": len(truth.sent),
            "packets_lost": len(truth.lost),
            "packets_retransmitted": sum(again for *_, again in truth.sent),
        }
        for (i, truth), (src, dst) in zip(truths.items(), plan.pairs, strict=True)
    ]
    # As in `_flow`: 0.5% of what a host sends carries no payload.
    line_bps = plan.topology.planes * plan.topology.port_rate_bps
    control_bytes = round(0.005 * line_bps / 8 * plan.duration)
    run = {
        "t0_ns": T0_NS,
        "duration_s": plan.duration,
        "base_rtt_ns": 131_000_000,
        "bin_s": 0.05,
        "flows": flows,
        "hosts": {src: {"control_bytes": control_bytes} for src, _ in plan.pairs},
    }
    faults = [
        {
            "index": i,
            "kind": "blackhole",
            "target": f.target,
            "places": directions_of(f.target),
            "actuator": "openflow",
            "requested_ns": ns(f.at - 0.004),
            "effective_after_ns": ns(f.at - 0.0012) if f.effective else None,
            "effective_ns": ns(f.at) if f.effective else None,
            "heal_requested_ns": None if f.until is None else ns(f.until - 0.004),
            "healed_ns": None if f.until is None else ns(f.until),
            "steps": _steps(f),
            "proof": {"table": "priority drop installed, barrier reply", "last_packet": 48121},
        }
        for i, f in enumerate(plan.failures)
    ]
    health: list[dict[str, object]] = [
        {
            "t_ns": ns(second),
            "process": host,
            "interval_ns": NS_PER_S,
            "lag_p99_ns": plan.lag_ns,
            "lag_max_ns": plan.lag_ns * 3,
            "cpu_ns": 210_000_000,
            "drops": {"raw_socket": plan.unexplained_drops},
        }
        for second in range(1, int(plan.duration) + 1)
        for host in ("h0", "h4")
    ]
    health += [
        {"t_ns": ns(s), "process": "machine", "cpus": 2, "busy_share": 0.31}
        for s in range(1, int(plan.duration) + 1)
    ]
    (directory / "manifest.json").write_text(json.dumps(manifest, indent=1))
    (directory / "run.json").write_text(json.dumps(run, indent=1))
    (directory / "faults.jsonl").write_text("".join(json.dumps(f) + "\n" for f in faults))
    (directory / "health.jsonl").write_text("".join(json.dumps(h) + "\n" for h in health))
