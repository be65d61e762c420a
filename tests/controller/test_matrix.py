"""Every kind of fault on every target that it applies to: injected, proven, healed.

Real packets cross every path of a small fabric all the time; for each of them the faults' records
say whether it had to arrive. `TESTBED_SOAK=1` makes every fault last ten times as long.
"""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from testbed.emulation.controller.plan import choose_wires
from testbed.emulation.fabric.link_model.link_model import LinkModel
from testbed.emulation.fabric.openvswitch import available
from testbed.model.fabric import addressing
from testbed.model.fabric.names import link_of
from testbed.model.faults.impairment import HEALTHY, Impairment, combined
from testbed.model.faults.kinds import Fault
from tests.controller.test_faults import MS, running
from tests.controller.test_plan import TINY, fault, struck
from tests.controller.traffic import PathTraffic
from tests.sandbox import run_in_sandbox
from tests.waiting import WATCHDOG_S

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("has_link_model")]

LASTING_MS = 1000 if "TESTBED_SOAK" in os.environ else 90
FLAPPING_MS = max(LASTING_MS, 480)
"""Twice dark and twice bright."""

GAP_MS = 90
SLOWER = (1, 2, 4, 8)
"""How many times slower the faults are played where a machine is too late for them."""

SETTLED_NS = 20 * MS
"""A packet sent so shortly before a change may meet it, on a busy machine."""
ENOUGH = 20
"""Packets, each lost with probability 1/2, of which surely one was lost and one was not."""

P0_T1_1 = addressing.flow_label_of_ev(addressing.ev_for_path(addressing.Path(0, 1)))
"""What the packets of that path carry in their flow label."""

LINK, NIC, ONE_WAY = "p0_t0_0--p0_t1_1", "h0--p0_t0_0", "p0_t0_0>p0_t1_1"
TARGETS: dict[str, dict[str, Any]] = {
    "a link": {"target": LINK},
    "a NIC port": {"target": NIC},
    "one direction": {"target": ONE_WAY},
    "a T0": {"target": "p0_t0_0"},
    "a T1": {"target": "p0_t1_1"},
    "a plane": {"target": "p0"},
    "a transceiver": {"target": "p0_t0_0-u0..1"},
    "two at random": {"target": "links", "choose": 2},
    "a list": {"target": [LINK, "h1--p1_t0_1"]},
}
KINDS: dict[str, dict[str, Any]] = {
    "cut": {},
    "blackhole": {},
    "loss": {"probability": 0.5},
    "corrupt": {"probability": 0.5},
    "degrade": {"factor": 0.25},
    "delay": {"extra": "5 us"},
    "ev_loss": {"probability": 1.0, "path": "p0/t1_1"},
    "flap": {},
}
READ_BACK = {
    "loss": {"loss_ppm": [500_000]},
    "corrupt": {"corrupt_ppm": [500_000]},
    "delay": {"delay_ns": [round(5_000 * TINY.dilation)]},
    "ev_loss": {"path_loss_ppm": [1_000_000], "path_value": [P0_T1_1]},
}
"""What the link model's memory then has, wherever it strikes."""

BOTH_WAYS = ("cut", "flap")

MET = (
    *((kind, "sent while dark") for kind in ("cut", "blackhole", "reboot", "flap")),
    ("flap", "crossed while bright"),
)
"""What packets on a kind's links have to meet."""


def matrix() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every (kind, target in words, what the fault says of it)."""
    for kind, keys in KINDS.items():
        for words, target in TARGETS.items():
            if kind not in BOTH_WAYS or ">" not in target["target"]:
                yield kind, words, {**keys, **target}
    for switch in ("p0_t0_0", "p1_t1_0"):
        yield "reboot", switch, {"target": switch}


def timeline(cases: list[tuple[str, str, dict[str, Any]]], slower: int) -> tuple[Fault, ...]:
    """One fault after the other, with a time between in which all is well; so many times slower."""
    faults, at_ms = [], 100
    for kind, _, keys in cases:
        lasting_ms = slower * (FLAPPING_MS if kind == "flap" else LASTING_MS)
        period = {"period": f"{lasting_ms // 2} ms"} if kind == "flap" else {}
        times = {"at": f"{at_ms} ms", "duration": f"{lasting_ms} ms"}
        faults.append(fault(kind=kind, **times, **keys, **period))
        at_ms += lasting_ms + slower * GAP_MS
    return tuple(faults)


@dataclass(frozen=True)
class Outcome:
    """What the controller recorded, and what became of the packets."""

    records: list[dict[str, Any]]
    traffic: PathTraffic


def play(cases: list[tuple[str, str, dict[str, Any]]], directory: Path, *, wires: bool) -> None:
    """Play the faults and check every packet against their records.

    Where the machine was so late that one fault began before another had healed, all are played
    again, slower.
    """
    for slower in SLOWER:
        place = directory / f"{slower}"
        place.mkdir()
        played = run_in_sandbox(
            lambda: _play_once(cases, place, slower, wires=wires),  # noqa: B023 - called at once
            timeout_s=WATCHDOG_S,
        )
        if played:
            return
    pytest.fail(f"faults met each other even {slower} times slower")


def _play_once(
    cases: list[tuple[str, str, dict[str, Any]]], directory: Path, slower: int, *, wires: bool
) -> bool:
    """Whether each fault had healed before the next began; if so, all has been checked."""
    faults = timeline(cases, slower)
    links = choose_wires(struck(*faults), openvswitch=wires)
    with running(directory, faults, links) as run, PathTraffic(TINY) as traffic:
        run.play("done", timeout_s=WATCHDOG_S)
        run.controller.stop()
    records = run.faults()
    if _overlap(records):
        return False
    check(cases, Outcome(records, traffic))
    return True


def _overlap(records: list[dict[str, Any]]) -> bool:
    """Whether a fault began before the one before it had healed."""
    return any(
        later["effective_after_ns"] < earlier["healed_ns"] for earlier, later in pairwise(records)
    )


def check(cases: list[tuple[str, str, dict[str, Any]]], outcome: Outcome) -> None:
    """Each fault took effect and healed, and no packet fared otherwise than they say."""
    records = outcome.records
    assert len(records) == len(cases)
    for (kind, words, _), record in zip(cases, records, strict=True):
        assert record["error"] is None, (kind, words, record)
        assert record["kind"] == kind
        assert record["requested_ns"] <= record["effective_after_ns"] <= record["effective_ns"]
        assert record["effective_ns"] < record["heal_after_ns"] <= record["healed_ns"]
        _check_proof(kind, record)
    fates = {record["index"]: Counter[str]() for record in records}
    for number, sent in enumerate(outcome.traffic.sent):
        strike = held(records, sent.t_ns)
        if strike is None:
            continue
        index, places, state = strike
        on_way = [state for place in sent.directions if place in places]
        suffered = combined(on_way)
        arrived = number in outcome.traffic.intact
        if index is None or not on_way:
            assert arrived, (sent, index)
        elif suffered == HEALTHY:
            assert arrived, (sent, index)
            fates[index]["crossed while bright"] += 1
        elif not suffered.deliverable_share:
            assert not arrived, (sent, index, suffered)
            fates[index]["sent while dark"] += 1
        elif suffered.path_loss:
            assert arrived == (sent.path_bits != suffered.path_bits), (sent, index)
        else:
            fates[index]["arrived" if arrived else "lost"] += 1
    _check_fates(cases, records, fates)


def _check_proof(kind: str, record: dict[str, Any]) -> None:
    """What was read back says that it took effect, and that it is over."""
    proof, dark = record["proof"], kind in {"cut", "reboot"}
    assert proof["until_end"]["carrier"] is not dark
    assert ("routes_read_back" in proof) is (dark or kind == "flap")
    rates_bps = sorted({quarter_bps(place) for place in record["places"]})
    shown = proof["injected"]["read_back"]
    expected = {**READ_BACK, "degrade": {"rate_bps": rates_bps}}.get(kind, shown)
    assert shown == expected, (kind, record)
    assert (proof["healed"]["carrier"], proof["healed"]["read_back"]) == (True, {})


def quarter_bps(direction: str) -> int:
    """A quarter of a direction's rate, as the link model keeps it."""
    link = TINY.links[link_of(direction)]
    return LinkModel.kept_rate_bps(round(TINY.rate_bps(link) / 4))


def _check_fates(
    cases: list[tuple[str, str, dict[str, Any]]],
    records: list[dict[str, Any]],
    fates: Mapping[int, Counter[str]],
) -> None:
    """What strikes by chance took some packets and let some pass; what only slows took none.

    Of most targets of a kind packets met what they had to meet: a machine that stood still while
    one was struck sent none then.
    """
    for kind in ("loss", "corrupt"):
        of_kind = [fates[record["index"]] for record in records if record["kind"] == kind]
        assert all(sum(fate[outcome] for fate in of_kind) for outcome in ("arrived", "lost")), (
            kind,
            of_kind,
        )
    for kind, met in MET:
        counts = [fates[record["index"]][met] for record in records if record["kind"] == kind]
        assert 2 * sum(count > 0 for count in counts) >= len(counts), (kind, met, counts)
    for (kind, words, _), record in zip(cases, records, strict=True):
        fate = fates[record["index"]]
        if kind in {"loss", "corrupt"} and fate.total() >= ENOUGH:
            assert min(fate[outcome] for outcome in ("arrived", "lost")) > 0, words
        if kind in {"degrade", "delay"}:
            assert not fate["lost"], words


def held(
    records: list[dict[str, Any]], t_ns: int
) -> tuple[int | None, frozenset[str], Impairment] | None:
    """What was in force when a packet was sent; None where that changed about then."""
    for record in records:
        steps = record["steps"]
        for step, after in zip(steps, [*steps[1:], None], strict=True):
            if step["after_ns"] - SETTLED_NS <= t_ns < step["by_ns"]:
                return None
            if after is not None and step["by_ns"] <= t_ns < after["after_ns"] - SETTLED_NS:
                return record["index"], frozenset(record["places"]), Impairment(**step["state"])
    return (
        None
        if any(t_ns < r["steps"][0]["after_ns"] < t_ns + SETTLED_NS for r in records)
        else (
            None,
            frozenset(),
            HEALTHY,
        )
    )


def test_every_kind_on_every_target(tmp_path: Path) -> None:
    """On the links themselves."""
    cases = list(matrix())
    assert len(cases) == 72
    play(cases, tmp_path, wires=False)


def test_every_kind_on_a_wire(tmp_path: Path) -> None:
    """Through Open vSwitch where it can; the rest beside it, on the same link."""
    availability = available()
    if availability.datapath is None:
        pytest.skip(f"Open vSwitch: {availability.reason}; {availability.remedy}")
    cases = [case for case in matrix() if case[1] in {"a link", "one direction"}]
    play(cases, tmp_path, wires=True)


def test_of_two_faults_on_a_link_the_other_goes_on(tmp_path: Path) -> None:
    """A link swallows everything, then its T1 goes dark; the link heals first, and stays dark."""
    faults = (
        fault(LINK, "100 ms", "400 ms"),
        fault("p0_t1_1", "300 ms", "450 ms", "cut"),
    )

    def inside() -> None:
        with running(tmp_path, faults, ()) as run, PathTraffic(TINY) as traffic:
            run.play("done")
            time.sleep(0.1)
            run.controller.stop()
        link, switch = run.faults()
        assert (link["error"], switch["error"]) == (None, None)
        assert link["effective_ns"] < switch["effective_after_ns"]
        assert switch["effective_ns"] < link["healed_ns"] < switch["heal_after_ns"]
        assert link["proof"]["healed"]["carrier"] is False
        assert switch["proof"]["healed"]["carrier"] is True
        assert switch["proof"]["healed"]["read_back"] == {}
        tried = Counter[tuple[bool | None, ...]]()
        for number, sent in enumerate(traffic.sent):
            on_way = [r for r in (link, switch) if set(sent.directions) & set(r["places"])]
            states = tuple(_is_in_force(record, sent.t_ns) for record in on_way)
            tried[states] += 1
            if True in states:
                assert number not in traffic.intact, (sent, states)
            elif None not in states:
                assert number in traffic.intact, (sent, states)
        # other paths; of those over the link: before and after, the one, both, the other
        seen = [(), (False, False), (True, False), (True, True), (False, True)]
        assert min(tried[states] for states in seen) > 5, tried

    run_in_sandbox(inside, timeout_s=WATCHDOG_S)


def _is_in_force(record: dict[str, Any], t_ns: int) -> bool | None:
    """Whether a fault was in force when a packet was sent; None about when that changed."""
    if t_ns < record["effective_after_ns"] - SETTLED_NS or t_ns >= record["healed_ns"]:
        return False
    if record["effective_ns"] <= t_ns < record["heal_after_ns"] - SETTLED_NS:
        return True
    return None


TICKING = "import time\nwhile True: print(time.monotonic_ns(), flush=True), time.sleep(0.005)"
"""A process that says all the time that it runs: it stands for an endpoint."""


def test_every_kind_on_endpoints(tmp_path: Path) -> None:
    """One is stopped, then both, then the other one is killed; each goes on until and unless."""
    entry = {"kind": "kill", "target": "h1", "at": "700 ms"}
    kill: Fault = TypeAdapter(Fault).validate_python(entry)
    faults = (
        fault("h0", "100 ms", "150 ms", "freeze"),
        fault(["h0", "h1"], "400 ms", "150 ms", "freeze"),
        kill,
    )

    def inside() -> None:
        with ExitStack() as stack:
            pids = {host: stack.enter_context(_ticking(tmp_path / host)) for host in ("h0", "h1")}
            run = stack.enter_context(running(tmp_path, faults, ()))
            run.controller.begin(time.monotonic_ns() + 50 * MS, pids)
            run.listen("done")
            time.sleep(0.1)
            run.controller.stop()
        one, both, killed = run.faults()
        assert [record["error"] for record in (one, both, killed)] == [None, None, None]
        assert killed["healed_ns"] is None
        assert killed["proof"] == {"injected": {"ended": True}, "until_end": {"ended": True}}
        for record in (one, both):
            assert record["proof"] == {
                "injected": {"stopped": True},
                "until_end": {"stopped": True},
                "healed": {"stopped": False},
            }
        ran = {
            host: [int(line) for line in (tmp_path / host).read_text().splitlines()]
            for host in ("h0", "h1")
        }
        for host, struck_by in (("h0", (one, both)), ("h1", (both, killed))):
            ticks = ran[host]
            assert min(ticks) < struck_by[0]["effective_after_ns"]
            for record in struck_by:
                healing_ns = record["heal_after_ns"] or time.monotonic_ns()
                assert not [t for t in ticks if record["effective_ns"] < t < healing_ns]
        assert max(ran["h0"]) > both["healed_ns"]

    run_in_sandbox(inside, timeout_s=WATCHDOG_S)


@contextmanager
def _ticking(output: Path) -> Iterator[int]:
    """A process that ticks into a file, until it is ended; its number."""
    with output.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-c", TICKING], stdout=file)
        try:
            yield process.pid
        finally:
            process.kill()
            process.wait()
