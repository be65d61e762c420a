"""`testbed trace`: the walk by the model, and a real packet's beside it."""

import json
from pathlib import Path

import pytest

from testbed.emulation.fabric.capture import LiveTrace, Seen
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology

from .conftest import Call

SEEN = tuple(
    Seen(port, destination, 64 - number, 41, 9)
    for number, (port, destination) in enumerate(
        [
            ("h0-p1", "5f00:0:1200:2201:1201:3200::"),
            ("p1_t0_0-u1", "5f00:0:2201:1201:3200::"),
            ("p1_t1_1-d1", "5f00:0:1201:3200::"),
            ("p1_t0_1-d0", "5f00:0:3200::"),
        ]
    )
)


def test_the_walk_of_a_path_and_of_its_ev(call: Call) -> None:
    by_path = json.loads(call("trace", "clos-tiny", "h0", "h1", "--path", "p1/t1_1", "--json").out)
    by_ev = json.loads(call("trace", "clos-tiny", "h0", "h1", "--ev", "0x90000", "--json").out)
    assert by_path == by_ev
    assert (by_ev["path"], by_ev["ev"]) == ("p1/t1_1", 0x90000)
    assert [hop["node"] for hop in by_ev["hops"]] == ["h0", "p1_t0_0", "p1_t1_1", "p1_t0_1", "h1"]
    assert by_ev["hops"][1] == {
        "node": "p1_t0_0",
        "does": "uN 1200, route 2201",
        "arrives": "5f00:0:1200:2201:1201:3200::",
        "own": "5f00:0:1200::/48",
        "route": "5f00:0:2201::/48",
        "port": "p1_t0_0-u1",
        "leaves": "5f00:0:2201:1201:3200::",
        "hop_limit": 63,
    }
    lines = call("trace", "clos-tiny", "h0", "h1", "--ev", "589824").out.splitlines()
    assert lines[0].rstrip() == "clos-tiny: p1/t1_1, EV 0x00090000"
    assert " ".join(lines[2].split()) == (
        "h0 sends, route 1200 h0-p1 64 5f00:0:1200:2201:1201:3200::"
    )
    assert " ".join(lines[6].split()) == "h1 receives as 3200"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--path", "p0"), "--path: found p0, expected a path from h0 to h1, such as p0/t1_0"),
        (("--ev", "4294967296"), "--ev: found 4294967296, expected a number of 32 bits"),
        (("--ev", "-1"), "--ev: found -1, expected a number of 32 bits"),
        (("--ev", "x"), "--ev: found x, expected a number of 32 bits"),
        (("--ev", "1", "--path", "p0/t1_0"), "--ev: found 1, expected only one of --ev and --path"),
    ],
)
def test_what_names_no_path(call: Call, options: tuple[str, ...], message: str) -> None:
    called = call("trace", "clos-tiny", "h0", "h1", *options)
    assert called.status == 2
    assert message in called.err


def test_hosts_that_are_none(call: Call) -> None:
    called = call("trace", "clos-tiny", "h0", "p0_t0_0")
    assert called.status == 2
    assert "DST: found p0_t0_0, expected a host of clos-tiny: h0 to h1" in called.err


def live(
    call: Call, monkeypatch: pytest.MonkeyPatch, found: LiveTrace, *options: str
) -> tuple[int, str, str]:
    def trace_live(_: Topology, src: Node, dst: Node, path: object, ev: int) -> LiveTrace:
        assert (src.name, dst.name, ev) == ("h0", "h1", 0x90000)
        assert path is not None
        return found

    monkeypatch.setattr("testbed.emulation.fabric.capture.trace_live", trace_live)
    monkeypatch.setattr("testbed.emulation.fabric.capabilities.require", lambda: None)
    called = call("trace", "clos-tiny", "h0", "h1", "--ev", "0x90000", "--live", *options)
    return called.status, called.out, called.err


def test_a_packet_that_does_as_the_model_says(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    status, out, err = live(call, monkeypatch, LiveTrace(SEEN, delivered=True))
    assert (status, err) == (0, "")
    assert out.count("5f00:0:1201:3200::") == 2
    assert out.splitlines()[6].split()[-1] == "delivered"


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (LiveTrace(SEEN, delivered=False), "h1 did not receive the packet"),
        (LiveTrace(SEEN[:3], delivered=True), "in the model, not captured: p1_t0_1-d0 to"),
        (
            LiveTrace((*SEEN, Seen("p1_t0_1-u0", "5f00::", 60, 41, 9)), delivered=True),
            "captured, not in the model: p1_t0_1-u0 to 5f00::, hop limit 60",
        ),
        (LiveTrace(SEEN + SEEN[:1], delivered=True), "captured in another order"),
        (LiveTrace((SEEN[1], SEEN[0], *SEEN[2:]), delivered=True), "captured in another order"),
        (
            LiveTrace((Seen("h0-p1", str(SEEN[0].destination), 64, 43, 9), *SEEN[1:]), True),
            "h0-p1 to 5f00:0:1200:2201:1201:3200::, hop limit 64, next header 43",
        ),
    ],
)
def test_a_packet_that_does_otherwise_fails(
    call: Call, monkeypatch: pytest.MonkeyPatch, found: LiveTrace, message: str
) -> None:
    status, _, err = live(call, monkeypatch, found)
    assert status == 1
    assert message in err
    status, out, _ = live(call, monkeypatch, found, "--json")
    assert status == 1
    assert json.loads(out)["live"]["as_expected"] is False


RACKS = """\
name: racks
planes: 3
t0_per_plane: 2
t1_per_plane: 3
hosts_per_t0: 2
"""
"""As small as may be with a choice of everything."""


@pytest.mark.root
@pytest.mark.parametrize(
    ("ends", "options"),
    [
        (("h0", "h2"), ("--path", "p1/t1_1")),
        (("h3", "h1"), ("--ev", "0x001aabcd")),
        (("h0", "h1"), ("--path", "p2")),
    ],
)
def test_a_real_packet(call: Call, ends: tuple[str, str], options: tuple[str, ...]) -> None:
    Path("racks.yaml").write_text(RACKS)
    called = call("trace", "racks.yaml", *ends, *options, "--live", "--json")
    result = json.loads(called.out)
    assert (called.status, called.err) == (0, "")
    assert result["live"]["delivered"] is True
    assert [seen["destination"] for seen in result["live"]["seen"]] == [
        hop["leaves"] for hop in result["hops"][:-1]
    ]
    assert {seen["flow_label"] for seen in result["live"]["seen"]} == {result["ev"] >> 16}
