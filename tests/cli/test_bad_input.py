"""Every kind of wrong input: what is said about it, and that nothing is built."""

import os
import shutil
from pathlib import Path

import pytest

from testbed.model.faults.kinds import Delay
from testbed.model.files import matrices
from testbed.model.files.scenarios import load_scenario
from testbed.model.workload import Connections

from .conftest import Call

LONG = "9" * 5000
"""A number that Python does not read (`sys.set_int_max_str_digits`)."""

RIGHT = """\
name: x
topology: clos-4plane
duration: 10 s
workload:
  pairs: [[h0, h4]]
  message_size: 1 MiB
timeline:
  - {kind: blackhole, target: p0_t0_0--p0_t1_1, at: 4 s, for: 3 s}
"""


def _refused(call: Call, text: str | bytes, *messages: str) -> None:
    """Both `validate` and `run` say all of `messages` on stderr and leave nothing."""
    raw = text if isinstance(text, bytes) else text.encode()
    Path("bad.yaml").write_bytes(raw)
    for command in ("validate", "run"):
        called = call(command, "bad.yaml")
        assert called.status == 2, called.err
        assert called.out == ""
        for message in messages:
            assert message in called.err
        assert called.err.startswith("error: bad.yaml")
        assert "Traceback" not in called.err
        assert "pydantic" not in called.err
        assert [path.name for path in Path().iterdir()] == ["bad.yaml"]


def test_the_right_file_is_right(call: Call) -> None:
    Path("right.yaml").write_text(RIGHT)
    called = call("validate", "right.yaml")
    assert (called.status, called.err) == (0, "")


@pytest.mark.parametrize(
    ("right", "wrong", "messages"),
    [
        # keys
        (
            "duration: 10 s",
            "duraton: 10 s",
            [
                "bad.yaml:3: duraton: found the unknown key duraton, expected one of name, ",
                "remedy: did you mean duration?",
            ],
        ),
        (
            "at: 4 s",
            "att: 4 s",
            [
                "bad.yaml:8: timeline[0].at: expected a value, which is required (when it begins",
                "bad.yaml:8: timeline[0].att: found the unknown key att, expected one of kind, ",
                "did you mean at?",
            ],
        ),
        ("name: x\n", "", ["bad.yaml:1: name: expected a value, which is required"]),
        (
            "  message_size: 1 MiB",
            "  pairs: [[h1, h5]]",
            [
                (
                    "bad.yaml:6: workload.pairs: found the key pairs a second time, expected it "
                    "once (the first is on line 5)"
                ),
                "remove one of the two",
            ],
        ),
        # as a hurried user writes it
        (
            "timeline:",
            "transport: mrc\ntimeline:",
            ["bad.yaml:7: transport: found mrc, expected a mapping", "remedy: write {kind: mrc}"],
        ),
        (
            "workload:\n  pairs: [[h0, h4]]\n  message_size: 1 MiB",
            "workload: write_bw",
            ["bad.yaml:4: workload: found write_bw", "write {kind: write_bw}, and its pairs"],
        ),
        (
            "  pairs: [[h0, h4]]",
            "  kind: matrix\n  pairs: [[h0, h4]]",
            ["bad.yaml:5: workload.kind: found matrix, expected ", "did you mean connections?"],
        ),
        ("kind: blackhole", "kind: down", ["timeline[0].kind: found down", "did you mean cut?"]),
        (
            "{kind: blackhole, target: p0_t0_0--p0_t1_1",
            "{kind: reboot, silent: 5 s, target: p0_t1_1",
            ["bad.yaml:8: timeline[0].silent: found 5 s, expected less than for (3 s)"],
        ),
        (
            "for: 3 s",
            "for: 3 s, every: 2 s",
            ["bad.yaml:8: timeline[0].every: found 2 s, expected longer than for (3 s)"],
        ),
        (
            "kind: blackhole",
            "kind: loss, probability: 20%",
            ["timeline[0].probability: found 20%", "write it as a share: 0.2"],
        ),
        (
            "kind: blackhole",
            "kind: delay, extra: 60000 min",
            [
                "bad.yaml:8: timeline[0].extra: found 3600000 s, expected at most 60 s when",
                "slowed down by the dilation, 10000",
                "remedy: 6 ms at most",
            ],
        ),
        (
            "kind: blackhole",
            "kind: degrade, factor: 0.000001",
            [
                "bad.yaml:8: timeline[0].factor: found ",
                "expected a rate at which a packet of 9014 bytes is sent within 60 s",
                "so that HTB can pace it (the link has 10 Mbit/s)",
                "remedy: 0.0001202 or more",
            ],
        ),
        (
            "kind: blackhole",
            "kind: loss, p: 0.2",
            ["timeline[0].p: found the unknown key p", "did you mean probability?"],
        ),
        (
            "duration: 10 s",
            "duration: 10",
            ["found 10, expected a number with a unit", "add the un"],
        ),
        ("duration: 10 s", "duration: 10 sec", ["found 10 sec", "with a unit (ns, us, µs, ms, s"]),
        ("duration: 10 s", "duration: -10 s", ["found -10 s, expected a number with a unit"]),
        (
            "topology: clos-4plane",
            "topology: {base: clos-4plane, port_rate: 100G}",
            ["topology.port_rate: found 100G", "such as '100 Gbit/s'"],
        ),
        (
            "topology: clos-4plane",
            "topology: [clos-4plane]",
            ["bad.yaml:2: topology: found a list of 1, expected a name", "testbed list"],
        ),
        (
            "  - {kind: blackhole",
            "  {kind: blackhole",
            ["bad.yaml:7: timeline: found a mapping, expected a list", "with a dash"],
        ),
        (
            "target: p0_t0_0--p0_t1_1",
            "target: [[p0_t0_0--p0_t1_1]]",
            ["timeline[0].target[0]: found a list of 1, expected text"],
        ),
        # what is expected
        (
            "timeline:",
            "expect: {faults: {recovry_rtt: 1}}\ntimeline:",
            [
                (
                    "bad.yaml:7: expect.faults.recovry_rtt: found the unknown metric recovry_rtt, "
                    "expected one of level, level_even, "
                ),
                "did you mean recovery_rtt?",
            ],
        ),
        (
            "timeline:",
            "expect: {flow: {}}\ntimeline:",
            ["expect.flow: found the unknown key flow", "did you mean flows?"],
        ),
        (
            "timeline:",
            "expect: {run: {bytes_lost: none}}\ntimeline:",
            [
                (
                    "bad.yaml:7: expect.run.bytes_lost: found none, expected a number, or a "
                    "mapping with at_least, at_most or both"
                )
            ],
        ),
        (
            "timeline:",
            "expect: {run: {bytes_lost: {at_mots: 1}}}\ntimeline:",
            ["expect.run.bytes_lost.at_mots: found the unknown key at_mots", "mean at_most?"],
        ),
        (
            "timeline:",
            "expect: {run: {bytes_lost: {at_least: 2, at_most: 1}}}\ntimeline:",
            ["expect.run.bytes_lost: expected at_least (2) up to at_most (1)"],
        ),
        (
            "timeline:",
            "expect: {victim: {packets_lost: 0}}\ntimeline:",
            ["expect.victim: found metrics of a victim, which the workload does not have"],
        ),
        (
            "timeline:",
            "expect: {operations: {count: {at_least: 1}}}\ntimeline:",
            [
                (
                    "bad.yaml:7: expect.operations: found metrics of operations, which the "
                    "workload write_bw does not have, expected no such key"
                )
            ],
        ),
        # units
        (
            "at: 4 s",
            "at: 4",
            [
                (
                    "bad.yaml:8: timeline[0].at: found 4, expected a number with a unit (ns, us, "
                    "µs, ms, s, min, RTT), such as '30 RTT'"
                )
            ],
        ),
        ("at: 4 s", "at: yes", ["timeline[0].at: found yes, expected a number with a unit"]),
        ("10 s", "ten seconds", ["duration: found ten seconds, expected a number with a unit"]),
        ("10 s", "10:30", ["duration: found 10:30, expected a number with a unit"]),
        ("10 s", "", ["bad.yaml:3: duration: found nothing, expected a number with a unit"]),
        ("1 MiB", "1 Mbit/s", ["message_size: found 1 Mbit/s, expected a number with a unit (B"]),
        ("10 s", "1e30 s", ["duration: found 1e30 s, expected a quantity that fits in 64 bits"]),
        # kinds and bounds of values
        ("10 s", "0 s", ["bad.yaml:3: duration: found 0 s, expected more than 0 (its length)"]),
        ("1 MiB", "1 GiB", ["message_size: found 1 GiB, expected a size from 1 B to 128 MiB"]),
        ("name: x", "name: a/b", ["name: found a/b, expected letters, digits, '.', '_' and '-'"]),
        (
            "name: x",
            "name: 12",
            ["bad.yaml:1: name: found 12, expected text", 'write it in quotes: "12"'],
        ),
        (
            "kind: blackhole",
            "kind: blackhol",
            ["kind: found blackhol, expected cut, blackhole, loss, ", "did you mean blackhole?"],
        ),
        (
            "name: x",
            "name: x\nseed: '3'",
            ["bad.yaml:2: seed: found '3', expected a whole number (seed of all random choices)"],
        ),
        ("name: x", "name: x\nseed: 1.5", ["seed: found 1.5, expected a whole number"]),
        ("name: x", "name: x\nseed: -1", ["seed: found -1, expected at least 0"]),
        (
            "name: x",
            "name: x\ntransport: {evs: many, window: 99, backups: half}",
            [
                "bad.yaml:2: transport.evs: found many, expected a whole number (EVs per QP",
                "transport.window: found 99, expected at most 16",
                "transport.backups: found half, expected a number",
            ],
        ),
        (
            "name: x",
            "name: x\ntransport: mrc",
            ["transport: found mrc, expected a mapping with the keys kind, evs, backups"],
        ),
        (
            "name: x",
            "name: x\ntransport: {kind: mcr}",
            ["bad.yaml:2: transport.kind: found mcr, expected ", "did you mean mrc?"],
        ),
        (
            "  pairs:",
            "  kind: write_bm\n  pairs:",
            ["bad.yaml:5: workload.kind: found write_bm, expected ", "did you mean write_bw?"],
        ),
        (
            "  pairs:",
            "  kind: {}\n  pairs:",
            ["bad.yaml:5: workload.kind: found an empty mapping, expected "],
        ),
        (
            "[[h0, h4]]",
            "[h0, h4]",
            ["workload.pairs[0]: found h0, expected a list (pairs of hosts, such as [[h0, h4]"],
        ),
        (
            "[[h0, h4]]",
            "[[h0]]",
            ["bad.yaml:5: workload.pairs[0][1]: expected a value, which is required (pairs"],
        ),
        ("[[h0, h4]]", "[[h0, h4, h5]]", ["pairs[0]: found a list of 3, expected a list of 2 at"]),
        ("[[h0, h4]]", "[]", ["pairs: found an empty list, expected a list of 1 or more"]),
        ("  - {kind", "  - 3\n  - {kind", ["timeline[0]: found 3, expected a mapping with the"]),
        # names
        (
            "clos-4plane",
            "clos-4plnae",
            [
                "bad.yaml:2: topology: found clos-4plnae, expected one of clos-16host, ",
                "did you mean clos-4plane?",
            ],
        ),
        ("clos-4plane", "link-failure", ["link-failure is a scenario"]),
        (
            "clos-4plane",
            "./none.yaml",
            ["bad.yaml:2: topology: found none.yaml, which does not exist, expected a file"],
        ),
        ("clos-4plane", "[1]", ["topology: found a list of 1, expected a name"]),
        (
            "clos-4plane",
            "{name: t, planes: 9, t0_per_plane: 1, t1_per_plane: true}",
            [
                "bad.yaml:2: topology.planes: found 9, expected at most 8",
                "topology.t1_per_plane: found true, expected a whole number (T1 switches in",
                "topology.hosts_per_t0: expected a value, which is required (hosts below",
            ],
        ),
        (
            "clos-4plane",
            (
                "{name: t, planes: 1, t0_per_plane: 2, t1_per_plane: 1, hosts_per_t0: 1, "
                "port_rate: 1 Gbit/s}"
            ),
            ["bad.yaml:2: topology: expected a bandwidth-delay product of 8 packets or more"],
        ),
        (
            "clos-4plane",
            "{base: clos-4plane, nics_per_node: 3}",
            [
                "bad.yaml:2: topology.hosts_per_t0: expected a multiple of nics_per_node (3), ",
                "remedy: 6, or rails: true",
            ],
        ),
        (
            "clos-4plane",
            "{base: clos-4plane, rails: true}",
            [
                "bad.yaml:2: topology.rails: found true, expected false where a node has one NIC",
                "remedy: set nics_per_node",
            ],
        ),
        (
            "p0_t0_0--p0_t1_1",
            "n8",
            ["timeline[0].target: found n8, expected a link of clos-4plane", "a node (n0)"],
        ),
        (
            "name: x",
            "name: x\nexpect: {nodes: {packets_lost: 0}}",
            ["expect.nodes: found metrics of nodes, each of which has one NIC, expected no such"],
        ),
        (
            "h4",
            "h44",
            ["workload.pairs[0][1]: found h44, expected a host of clos-4plane: h0 to h7"],
        ),
        ("h4", "h0", ["workload.pairs[0]: found h0 with itself, expected two different hosts"]),
        (
            "[[h0, h4]]",
            "[[h0, h4], [h4, h0]]",
            ["pairs[1]: found h4 and h0 a second time, expected each"],
        ),
        (
            "p0_t0_0--p0_t1_1",
            "p0_t0_0--p0_t1_l",
            [
                "bad.yaml:8: timeline[0].target: found p0_t0_0--p0_t1_l, expected a link of clos",
                "did you mean p0_t0_0--p0_t1_",
            ],
        ),
        # times that do not fit the run
        (
            "at: 4 s",
            "at: 14 s",
            ["timeline[0].at: found 14 s, expected a time within the run, before 10 s", "longer"],
        ),
        (
            "for: 3 s",
            "for: 7 s",
            ["timeline[0].for: found 7 s from 4 s on, expected healing within", "6 s at most"],
        ),
        (
            "for: 3 s}",
            "for: 3 s}\n  - {kind: blackhole, target: p0_t0_0--p0_t1_1, at: 5 s, for: 1 s}",
            ["bad.yaml:9: timeline[1].at: found 5 s, expected a time after timeline[0] is over"],
        ),
    ],
)
def test_wrong_values(call: Call, right: str, wrong: str, messages: list[str]) -> None:
    assert right in RIGHT
    _refused(call, RIGHT.replace(right, wrong, 1), *messages)


SLIPS = [
    ("a key misspelt", "duration: 10 s", "duraton: 10 s", "3: duraton: ", "did you mean duration?"),
    ("a name misspelt", "clos-4plane", "clos-4plnae", "2: topology: ", "did you mean clos-4plane?"),
    ("no unit", "duration: 10 s", "duration: 10", "3: duration: ", "add the unit: 10 s or 10 RTT"),
    ("a percentage", "blackhole", "loss, probability: 20%", "8: timeline[0].probability: ", "0.2"),
    ("a kind alone", "timeline:", "transport: roce\ntimeline:", "7: transport: ", "{kind: roce}"),
    (
        "no blank",
        "topology: clos",
        "topology:clos",
        "2: ",
        "a blank after the colon: topology: clos",
    ),
    ("no colon", "duration: 10 s", "duration = 10 s", "3: ", "write duration: 10 s"),
    ("a tab", "  pairs", "\tpairs", "5:1: ", "replace the tab by spaces"),
    ("another column", "  message_size", "    message_size", "6: ", "as the entries it belongs to"),
    ("a text with a colon", "name: x", "name: x\ndescription: so: x", "2: ", "in quotes if text"),
]
"""The ten slips that people make most: what, right, wrong, where it is named, what is advised."""


@pytest.mark.parametrize(("right", "wrong", "where", "remedy"), [slip[1:] for slip in SLIPS])
def test_the_ten_most_common_slips_are_named_with_what_to_write(
    call: Call, right: str, wrong: str, where: str, remedy: str
) -> None:
    _refused(call, RIGHT.replace(right, wrong, 1), f"bad.yaml:{where}found ", ", expected ", remedy)


LONG_TEXT = "write the key, a colon and >, and its whole text below, with blanks before each line"


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("", ["bad.yaml: found an empty file, expected a mapping of keys to values"]),
        ("# nothing\n", ["found an empty file"]),
        ("- a\n- b\n", ["found a list of 2, expected a mapping of keys to values"]),
        ("text", ["found text, expected a mapping"]),
        (
            "name: [x\n",
            ["bad.yaml:2:1: found no ] for the [ of line 1, expected ] or a comma"],
        ),
        ("\tname: x\n", ["bad.yaml:1:1: found a tab, expected spaces"]),
        ("name: x\n---\nname: y\n", ["bad.yaml:2:1:", "expected a single document"]),
        ("name: !!python/object:os.system x\n", ["bad.yaml:1: name: found a tag"]),
        ("a: &a [*a]\n", ["bad.yaml:1: found an alias within what it"]),
        ("? [a]\n: b\n", ["bad.yaml:1:3:", "a key that is not text"]),
        ("a: " + "[" * 5000 + "]" * 5000, ["nested too deeply"]),
        (
            (
                "a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
                "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n"
                "e: [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\n"
            ),
            ["more than 100,000 values"],
        ),
        (b"name: \xff\xfe\n", ["found a byte that is not UTF-8 at offset 6, expected a text file"]),
        (b"name: \x01\n", ["found invalid YAML", "special characters are not allowed"]),
        (
            f"name: {'1' * 5000}\n",
            [
                f"bad.yaml:1: name: found {'1' * 60}..., expected a number that YAML can read",
                "remedy: put text in quotes",
            ],
        ),
        ("name:x\n", ["bad.yaml: found name:x", "put a blank after the colon: name: x"]),
        ("name: x\nduration\nseed: 3\n", ["bad.yaml:2: found duration, expected a key, a colon"]),
        (
            "name: x\nworkload:\n  kind: write_bw\n depth: 3\n",
            ["bad.yaml:4: found depth: 3, which is indented unlike the lines above it"],
        ),
        (
            "name: x\nworkload:\nkind: write_bw\n  pairs: [[h0, h4]]\n",
            ["bad.yaml:4: found pairs: [[h0, h4]], which is indented unlike", "indent it as"],
        ),
        ("name: x\nworkload: kind: y\n", ["bad.yaml:2: found workload: kind: y, expected one key"]),
        ('name: "x\n', ["bad.yaml:1: found a quote that is not closed"]),
        ("name: @x\n", ["bad.yaml:1:7: found name: @x, with a character that", "put it in quotes"]),
        ("name: ? unknown\n", ["bad.yaml:1:7: found name: ? unknown, with a character that YAML"]),
        (
            "seed: 3\nname: 'it's x'\n",
            ["bad.yaml:2: found name: 'it's x', which goes on behind ', expected", LONG_TEXT],
        ),
        (
            "seed: 3\nname: [sic] the sender waits\n",
            ["bad.yaml:2: found name: [sic] the sender waits, which goes on behind ]", LONG_TEXT],
        ),
        (
            "name: the sender waits\n  for one thing: x\nseed: 3\n",
            ["bad.yaml:2: found for one thing: x, which is indented unlike", LONG_TEXT],
        ),
        (
            "name: the sender waits\nand not the switches\nseed: 3\n",
            [
                "bad.yaml:2: found and not the switches, expected a key",
                "if it is a remark",
                LONG_TEXT,
            ],
        ),
        (
            "name: the flow #2 lost 12 packets and\n  then it goes on here\nseed: 3\n",
            ["bad.yaml:2: found then it goes on here, which is indented unlike", LONG_TEXT],
        ),
        (
            "pairs:\n  - p0_t0_1\n  p0_t0_2\nseed: 3\n",
            ["bad.yaml:3: found p0_t0_2, expected ", "or - before an entry of a list"],
        ),
        (
            "timeline:\n  - kind: cut\n  at 3 s\nseed: 3\n",
            ["bad.yaml:3: found at 3 s, expected a key, a colon and a value", "write at: 3 s"],
        ),
    ],
)
def test_what_is_no_yaml_mapping(call: Call, text: str | bytes, messages: list[str]) -> None:
    _refused(call, text, *messages)


@pytest.mark.parametrize(
    ("right", "wrong", "meant"),
    [
        ("name: x", "name: x\ntransport: {evs: 010}", "write it without the leading 0: 10"),
        (
            "name: x",
            "name: x\nexpect: {flows: {lost_bytes: {at_most: 0}}}",
            "did you mean run.bytes_lost?",
        ),
        ("kind: blackhole", "kind: loss, probability: 2%", "write it as a share: 0.02"),
        ("clos-4plane", "{base: clos-4plane, port_rate: 1 Gbit}", "did you mean 1 Gbit/s?"),
        ("h4", "H4", "did you mean h4?"),
        ("h4", "p0_t0_1", "a switch sends no data: name a host below it"),
        ("p0_t0_0--p0_t1_1", "P2_T1_1", "did you mean p2_t1_1?"),
        ("kind: blackhole", "kind: ev_loss, path: p2_t1_3, probability: 1", "mean p2/t1_3?"),
        ("name: x", "name: x\nexpect: {run: {lost_bytes: 0}}", "did you mean bytes_lost?"),
        ("name: x", "name: x\nexpect: {stall_rtt: 3}", "did you mean faults.stall_rtt?"),
        ("name: x", "name: x\nexpect: {run: {bytes_lost: {max: 0}}}", "did you mean at_most?"),
        ("name: x", "name: x\nexpect: {faults: {stall_rtt: < 3}}", "write {at_most: 3}"),
        (
            "name: x",
            "name: x\nexpect: {flows: {goodput_run_bps: {at_least: 37 Mbit/s}}}",
            "found 37 Mbit/s, expected a number (in the unit that the metric's name ends with",
        ),
        (
            "name: x",
            "name: x\ntransport: {judgement: relative}",
            "did you mean transport.dialect.judgement?",
        ),
        ("duration: 10 s", "duration: 10", "add the unit: 10 s or 10 RTT"),
        ("kind: blackhole", "kind: delay, extra: 5", "add the unit: 5 us"),
        ("[[h0, h4]]", "h0", "write it in brackets: [h0]"),
    ],
)
def test_the_remedy_has_the_value_that_was_meant(
    call: Call, right: str, wrong: str, meant: str
) -> None:
    _refused(call, RIGHT.replace(right, wrong, 1), meant)


def test_values_that_do_not_fit_together_are_told_when_each_is_right(call: Call) -> None:
    text = RIGHT.replace("h4", "h99") + "  - {kind: cut, target: h0--h4, at: 14 s, for: 1 s}\n"
    _refused(call, text.replace("1 MiB", "1"), "workload.message_size: found 1, ")
    _refused(
        call,
        text,
        "workload.pairs[0][1]: found h99, ",
        "timeline[1].target: found h0--h4, ",
        "timeline[1].at: found 14 s, ",
    )


def test_all_problems_are_told_at_once(call: Call) -> None:
    text = RIGHT.replace("clos-4plane", "nowhere").replace("10 s", "10").replace("h4", "5")
    Path("bad.yaml").write_text(text)
    called = call("run", "bad.yaml")
    assert called.status == 2
    assert [line for line in called.err.splitlines() if line.startswith("error: ")] == [
        line for line in called.err.splitlines() if "bad.yaml:" in line
    ]
    for where in ("bad.yaml:2: topology", "bad.yaml:3: duration", "bad.yaml:5: workload.pairs"):
        assert where in called.err


def test_problems_of_a_topology_file_are_told_in_that_file(call: Call) -> None:
    Path("sub").mkdir()
    Path("sub/fabric.yaml").write_text("name: f\nplanes: 2\nt0_per_plane: two\n")
    Path("sub/x.yaml").write_text(RIGHT.replace("clos-4plane", "./fabric.yaml"))
    called = call("run", "sub/x.yaml")
    assert called.status == 2
    assert "sub/fabric.yaml:3: t0_per_plane: found two, expected a whole number" in called.err


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (["run", "link-falure"], ["scenario: found link-falure", "did you mean link-failure?"]),
        (["run", "clos-tiny"], ["clos-tiny is a topology"]),
        (
            ["validate", "nothing-like-it"],
            ["scenario: found nothing-like-it, expected a name that testbed list shows"],
        ),
        (["run", "./none.yaml"], ["none.yaml: found no such file or directory, expected a YAML"]),
        (["run", "sub/"], ["sub: found a directory, expected a YAML file"]),
        (["run", "here"], ["for the file write ./here"]),
        (["run"], ["Missing argument 'SCENARIO...'"]),
        (["run", "link-failure", "--seed", "x"], ["--seed"]),
        (
            ["run", "link-failure", "--seed", "-1"],
            ["--seed: found -1, expected a whole number from"],
        ),
        (["run", "link-failure", "--sed", "1"], ["--sed"]),
        (["runn", "link-failure"], ["runn"]),
        (["paths", "clos-tiny", "h0", "h7"], ["DST: found h7, expected a host of clos-tiny"]),
        (["paths", "clos-tiny", "h0", "h0"], ["SRC: found h0, expected two different hosts"]),
        (
            ["simulate", "link-failure", "--sweep", "transport.evs=4:8"],
            ["--sweep: transport.evs: found 4:8, expected a whole number"],
        ),
        (
            ["validate", "link-failure", "--set", "transport.evs=010"],
            ["--set: transport.evs: found 010", "without the leading 0: 10"],
        ),
        (["validate", "link-failure", "--set", "evs=4"], ["did you mean transport.evs?"]),
        (["validate", "link-failure", "--set", "probability=1"], ["mean timeline[0].probability?"]),
        (
            ["validate", "link-failure", "--set", "timeline[0].at=100 RTT"],
            ["timeline[0].at: found 100 RTT (13.08 s), expected a time within the run"],
        ),
        (["validate", "link-failure", "--set", "drain=20 RTTs"], ["did you mean 20 RTT?"]),
        (
            ["simulate", "link-failure", "link-failure-tcp"],
            ["link-failure-tcp: transport.kind: found tcp, expected mrc or roce"],
        ),
        (["validate", "clos-tiny", "--set", "planes=3"], ["--set: found clos-tiny, a topology"]),
        (["trace", "clos-tiny", "h0", "h1", "--path", "p0_t1_0"], ["did you mean p0/t1_0?"]),
        (["paths", "clos-tny", "h0", "h1"], ["topology: found clos-tny", "clos-tiny?"]),
        (["run", "healthy.yaml"], ["for the one that ships write healthy"]),
        (["report", "."], ["found ., expected the directory of a run"]),
        (["fault", "list", "."], ["found ., expected the directory of a run that is under way"]),
        (["fault", "heal", ".", "one"], ["N"]),
        (["fault", "heal", ".", LONG], ["N: found 999", "expected the number of a fault"]),
        (["simulate", "healthy", "--live", "--port", LONG], ["--port: found 999", "a TCP port"]),
        (["simulate", "healthy", "--repeat", "2", "--on", f"slurm:{LONG}"], ["the number of jobs"]),
        (["fault", "inject", ".", "loss", "p0", "often"], ["found often, expected key=value"]),
        (["fault", "inject", ".", "loss", "p0", "for=["], ["found [, expected a value in YAML"]),
        (["fault", "inject", ".", "cut", "p0", "kind=loss"], ["found kind=loss", "kind once"]),
        (["fault", "inject", ".", "cut", "p0", "for=1s", "for=2s"], ["found for=2s", "for once"]),
    ],
)
def test_wrong_arguments(call: Call, arguments: list[str], messages: list[str]) -> None:
    Path("sub").mkdir()
    Path("here").write_text(RIGHT)
    called = call(*arguments)
    assert called.status == 2, called.err
    for message in messages:
        assert message in called.err
    assert "Traceback" not in called.err
    assert sorted(path.name for path in Path().iterdir()) == ["here", "sub"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
@pytest.mark.parametrize("named", ["the scenario", "its topology", "that of a study"])
def test_a_named_pipe_is_not_waited_for(call: Call, named: str) -> None:
    os.mkfifo("pipe.yaml")
    Path("mine.yaml").write_text(RIGHT.replace("clos-4plane", "pipe.yaml"))
    study = "name: s\nscenarios: {a: ./pipe.yaml}\ncases: {x: {}}\nmetrics: [faults.stall_rtt]\n"
    Path("study.yaml").write_text(study)
    words = {
        "the scenario": ("validate", "./pipe.yaml"),
        "its topology": ("validate", "./mine.yaml"),
        "that of a study": ("study", "study.yaml", "--dry-run"),
    }
    called = call(*words[named])
    assert called.status == 2
    assert "a named pipe, expected a YAML file" in called.err


def test_results_that_cannot_be_written_to(call: Call) -> None:
    Path("right.yaml").write_text(RIGHT)
    Path("file").write_text("")
    called = call("run", "right.yaml", "--results", "file")
    assert called.status == 2
    assert "--results: found file, expected a directory to write to" in called.err


WORKLOADS = [
    (
        "{kind: permutation, hosts: [h0]}",
        ["hosts: found a list of 1, expected a list of 2 or more"],
    ),
    (
        "{kind: permutation, hosts: [h0, h0, h9]}",
        [
            "workload.hosts[1]: found h0 a second time, expected each host once",
            "workload.hosts[2]: found h9, expected a host of clos-4plane: h0 to h7",
        ],
    ),
    ("{kind: permutation, shift: 8}", ["workload.shift: found 8, expected 1 to 7, as 8 hosts"]),
    (
        "{kind: incast, senders: [h1, h0], target: h0}",
        ["workload.target: found h0, expected a host that is not one of the senders"],
    ),
    (
        "{kind: incast, senders: [h1, p0_t0_0], target: h0, victim: [h1, h0]}",
        [
            "workload.senders[1]: found p0_t0_0, expected a host",
            "workload.victim: found h1 to h0, expected a flow that is not part",
        ],
    ),
    ("{kind: allreduce, size: 1 GiB}", ["workload.size: found 1 GiB, expected a size from 1 B to"]),
    (
        "{kind: allreduce, pairs: [[h0, h1]]}",
        ["workload.pairs: found the unknown key pairs, expected one of kind, hosts, size, slices"],
    ),
    ("{kind: training}", ["workload.compute: expected a value, which is required (time at the"]),
    (
        "{kind: connections, matrix: none.cm}",
        ["workload.matrix: found none.cm, which does not exist, expected a file"],
    ),
    (
        "{kind: connections, matrix: [{src: h0, dst: h0, start: 0 s, size: -1}]}",
        [
            (
                "workload.matrix[0].size: found -1, expected a number of bytes, or one with a unit "
                "such as 2 MB, from 0 to 1099511627776"
            )
        ],
    ),
    (
        (
            "{kind: connections, matrix: [{src: 0, dst: h1, size: '1000'}, "
            "{src: h0, dst: h1, size: 2e6}]}"
        ),
        [
            "workload.matrix[0].src: found 0, expected text",
            "remedy: hosts have names: h0",
            "workload.matrix[0].size: found '1000', expected a number with a unit",
            "remedy: add the unit: 1000 B or leave out the quotes: 1000",
            "workload.matrix[1].size: found 2e6, expected a number of bytes",
            "remedy: write 2000000",
        ],
    ),
    (
        "{kind: connections, matrix: [{src: h0, dst: '4', size: 1}]}",
        ["workload.matrix[0].dst: found 4, expected a host of", "remedy: did you mean h4?"],
    ),
    (
        "{kind: connections, matrix: [{src: h0, dst: h8, start: 0 s, size: 1}]}",
        ["workload.matrix[0].dst: found h8, expected a host of clos-4plane: h0 to h7"],
    ),
    ("{kind: goal, file: .}", ["workload.file: found ., which is no file, expected a file"]),
]


@pytest.mark.parametrize(("workload", "messages"), WORKLOADS)
def test_wrong_workloads(call: Call, workload: str, messages: list[str]) -> None:
    _refused(call, f"name: x\ntopology: clos-4plane\nworkload: {workload}\n", *messages)


@pytest.mark.parametrize(
    ("matrix", "messages"),
    [
        ("", ["bad.cm: expected a line Nodes with the number of", "a line Connections with"]),
        ("Nodes 8\nConnections 0\n", ["bad.cm: found no transfer, expected a connection matrix"]),
        ("Nodes 1e9\n", ["bad.cm:1: found Nodes 1e9, expected Nodes and a whole number of 9 digi"]),
        (
            "Nodes 8\nConnections 1\n0->4 size 1e9\n",
            ["found size 1e9 in 0->4 size 1e9, expected size and a whole number of 30 digits at m"],
        ),
        (
            "Nodes 8\nConnections 2\n0->4 start 0 size 9\n",
            ["bad.cm: found Connections 2, expected the number of transfers, 1"],
        ),
        (
            "Nodes 8\nConnections 1\n0->8 start 0 size 9\n",
            ["bad.cm:3: found 0->8", "nodes below 8"],
        ),
        (
            "Nodes 8\nConnections 1\n0-4 start 0 size 9\n",
            ["bad.cm:3:", "a line such as 0->4 start 0"],
        ),
        (
            "Nodes 8\nConnections 1\n0->4 start 0 size\n",
            ["bad.cm:3:", "a line such as 0->4 start 0"],
        ),
        ("Nodes 8\nConnections 1\n0->4 start x size 1\n", ["bad.cm:3:", "a line such as 0->4"]),
        (
            "Nodes 8\nConnections 1\n0->4 start 0 size 4 speed 9\n",
            ["bad.cm:3: found speed in 0->4 start 0 size 4 speed 9, expected one of start, size"],
        ),
        (
            "Nodes 8\nConnections 1\n0->4 start 0 size 9999999999999\n",
            ["bad.cm:3: found 0->4", "expected a size of 1024 GiB at most"],
        ),
        ("Nodes 8\nConnections 1\n0->4 start 1e99 size 9\n", ["bad.cm:3:", "a start before"]),
        ("Connections 1\n0->4 start 0 size 9\n", ["bad.cm: expected a line Nodes with"]),
        (
            "Nodes 8\nConnections 1\n0->4 trigger 1 size 5\n",
            ["bad.cm:3: workload.matrix[0].trigger: found trigger 1, which is not described"],
        ),
        (
            "Nodes 8\nConnections 1\nTriggers 1\n0->4 trigger 1 size 5\ntrigger id 1 oneshot\n",
            [
                (
                    "bad.cm:4: workload.matrix[0]: found h0 to h4, which never begins: it waits "
                    "for trigger 1, which needs 1 transfers that are done, and has 0"
                )
            ],
        ),
        (
            (
                "Nodes 8\nConnections 2\nTriggers 2\n0->4 trigger 1 size 5 send_done_trigger 2\n"
                "0->5 trigger 2 size 5 send_done_trigger 1\n"
                "trigger id 1 oneshot\ntrigger id 2 oneshot\n"
            ),
            [
                (
                    "bad.cm:4: workload.matrix[0]: found h0 to h4, which never begins (and 1 "
                    "more): it waits for trigger 1, expected transfers that begin in the end"
                ),
                "remedy: give one of those that wait for one another a start",
            ],
        ),
        (
            "Nodes 8\nConnections 1\n0->4 start 5 trigger 1 size 5\n",
            ["bad.cm:3: found 0->4 start 5 trigger 1 size 5, expected a start or a trigger, not "],
        ),
        (
            "Nodes 8\nConnections 0\nTriggers 1\ntrigger id 1 oneshot barrier\n",
            ["bad.cm:4:", "expected an id and one of oneshot, multishot, barrier"],
        ),
        (
            "Nodes 8\nConnections 1\nTriggers 2\n0->4 start 0 size 5\ntrigger id 1 oneshot\n",
            ["bad.cm: found Triggers 2, expected the number of triggers, 1"],
        ),
        (
            (
                "Nodes 8\nConnections 1\nTriggers 2\n0->4 start 0 size 5\n"
                "trigger id 1 oneshot\ntrigger id 1 barrier\n"
            ),
            ["bad.cm:6: workload.triggers[1].id: found trigger 1 a second time"],
        ),
        (
            "Nodes 8\nConnections 0\nFailures 1\nfailure switch_type CORE switch_id 1 link_id 1\n",
            ["bad.cm:4: found CORE in failure", "expected TOR or AGG: the fabric has two tiers"],
        ),
        (
            "Nodes 8\nConnections 0\nFailures 1\nfailure switch_type TOR switch_id 1\n",
            ["bad.cm:4:", "a line such as failure switch_type TOR switch_id 0 link_id 1"],
        ),
        (
            (
                "Nodes 8\nConnections 1\nFailures 1\n0->4 start 0 size 9\n"
                "failure switch_type TOR switch_id 1 link_id 99\n"
            ),
            ["bad.cm:5: timeline[0].target: found p0_t0_1--p0_t1_99"],
        ),
        ("Nodes 8\nConnections 1\n0->4 start -1 size 5\n", ["bad.cm:3:", "a line such as"]),
        ("Nodes 8\nConnections 1\n0->4 start 0 size 5.5\n", ["bad.cm:3:", "a line such as"]),
        (
            "Nodes 8\nConnections 1\nNodes 4\n0->5 start 0 size 5\n",
            ["bad.cm:3: found Nodes 4, expected one line Nodes\n"],
        ),
        (
            "Nodes 8\nConnections 1\n0->5 start 0 size 5\nConnections 1\n",
            ["bad.cm:4: found Connections 1, expected one line Connections\n"],
        ),
        (
            "Connections 1\n0->5 start 0 size 5\nNodes 4\n",
            ["bad.cm:3: found Nodes 4, expected the line Nodes before the first transfer\n"],
        ),
        (
            "Nodes 8\nConnections 1\n0->5 start 0 start 5 size 5\n",
            ["bad.cm:3: found start in 0->5 start 0 start 5 size 5, expected each word once\n"],
        ),
        (
            "Nodes 8\nConnections 1\n0->5 msg msg start 5 size 5\n",
            ["bad.cm:3: found msg in 0->5 msg msg start 5 size 5, expected each word once\n"],
        ),
        (
            "Nodes 8\nConnections 5000\n"
            + "".join(f"0->1 start 0 size 9 w{i} 1\n" for i in range(5000)),
            [
                (
                    "(and 4,999 more such lines), expected one of start, size, id, prio, msg, "
                    "trigger, send_done_trigger, recv_done_trigger\n"
                ),
            ],
        ),
        ("\N{GREEK SMALL LETTER ALPHA}", ["bad.cm:1: found \N{GREEK SMALL LETTER ALPHA}, expe"]),
    ],
)
def test_wrong_connection_matrices(call: Call, matrix: str, messages: list[str]) -> None:
    Path("bad.cm").write_text(matrix)
    workload = "{kind: connections, matrix: bad.cm}"
    Path("x.yaml").write_text(f"name: x\ntopology: clos-4plane\nworkload: {workload}\n")
    called = call("run", "x.yaml")
    assert called.status == 2, called.err
    for message in messages:
        assert message in called.err


def test_what_is_wrong_with_a_matrix_is_one_message_for_each_cause(call: Call) -> None:
    """At the line of the matrix: for 128 hosts on 8, and with transfers within a host."""
    Path("x.yaml").write_text(
        "name: x\ntopology: clos-4plane\nworkload: {kind: connections, matrix: big.cm}\n"
    )
    rows = [f"{host}->{host - 1} start 0 size 9" for host in range(128, 0, -1)]
    rows += ["3->3 start 0 size 9", "4->4 start 0 size 9"]
    Path("big.cm").write_text("\n".join(["Nodes 129", f"Connections {len(rows)}", *rows]))
    assert call("validate", "./x.yaml").err == (
        "error: big.cm:3: workload.matrix[0].src: found h128 (and 120 more such hosts), expected a "
        "host of clos-4plane: h0 to h7\n"
        "error: big.cm:131: workload.matrix[128]: found h3 to itself (and 1 more transfers), "
        "expected two different hosts\n"
    )
    words = "".join("0->1 start 0 size 9 speed 1\n0->1 id x start 0 size 1\n" for _ in range(50))
    Path("big.cm").write_text(f"Nodes 8\nConnections 100\n{words}")
    assert call("validate", "./x.yaml").err == (
        "error: big.cm:3: found speed in 0->1 start 0 size 9 speed 1 (and 49 more such lines), "
        "expected one of start, size, id, prio, msg, trigger, send_done_trigger, "
        "recv_done_trigger\n"
        "error: big.cm:4: found id x in 0->1 id x start 0 size 1 (and 49 more such lines), "
        "expected id and a whole number of 30 digits at most, in a line such as 0->4 start 0 size "
        "2000000\n"
    )


def test_what_is_no_matrix_is_not_read_to_its_end(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrices, "_MOST_WRONG", 5)
    Path("x.yaml").write_text(
        "name: x\ntopology: clos-4plane\nworkload: {kind: connections, matrix: log.cm}\n"
    )
    Path("log.cm").write_text("x\n" * 10)
    assert "error: log.cm:1: found x (and at least 4 more such lines), expected a line such as" in (
        call("validate", "./x.yaml").err
    )


@pytest.mark.usefixtures("call")
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_connection_matrix_is_read_as_htsim_reads_it(mark: bytes, newline: str) -> None:
    text = (
        "# drei \N{LATIN SMALL LETTER U WITH DIAERESIS} \N{LINE SEPARATOR}\nNodes 8\n"
        "Connections 5\nTriggers 0\n"
        "0->4 id 1 start 2500000 size 70 prio 1\n\n  # late\n7->0 start 0 size 9 # first\n"
        "1->2 start 1.5e6 size 8\n1->2 id 1 msg start 0 size 8\n1->3 msg 7 start 0 size 0\n"
    )
    Path("right.cm").write_bytes(mark + text.replace("\n", newline).encode() + b"# \xfc\n")
    workload = "{kind: connections, matrix: right.cm}"
    Path("x.yaml").write_text(f"name: x\ntopology: clos-4plane\nworkload: {workload}\n")
    loaded = load_scenario("x.yaml").workload
    assert isinstance(loaded, Connections)
    assert [(one.src, one.dst, one.start, one.size) for one in loaded.matrix] == [
        ("h0", "h4", 2500, 70),
        ("h7", "h0", 0, 9),
        ("h1", "h2", 1500, 8),
        ("h1", "h2", 0, 8),
        ("h1", "h3", 0, 0),
    ]


@pytest.mark.usefixtures("call")
def test_a_failed_link_that_both_its_switches_name_is_cut_once() -> None:
    lines = ["Nodes 8", "Connections 1", "Failures 3", "0->4 size 9"]
    for kind, switch, link in (("TOR", 1, 0), ("TOR", 0, 1), ("AGG", 1, 0)):
        lines.append(f"failure switch_type {kind} switch_id {switch} link_id {link}")
    Path("cut.cm").write_text("\n".join(lines))
    workload = "{kind: connections, matrix: cut.cm}"
    Path("x.yaml").write_text(f"name: x\ntopology: clos-4plane\nworkload: {workload}\n")
    cut = [target for each in load_scenario("x.yaml").timeline for target in each.target]
    assert cut == ["p0_t0_1--p0_t1_0", "p0_t0_0--p0_t1_1"]


NAME = "L" * 300


@pytest.mark.parametrize(
    ("part", "where"),
    [
        (f"topology: {NAME}", "x.yaml:2: topology"),
        (f"topology: ./{NAME}.yaml", "x.yaml:2: topology"),
        (f"topology: {{base: {NAME}, planes: 2}}", "x.yaml:2: topology"),
        (f"workload: {{kind: connections, matrix: {NAME}.cm}}", "x.yaml:3: workload.matrix"),
        (f"transport: {{spray: '{NAME}.py:A'}}", "x.yaml:4: transport.spray"),
        (f"workload: {{kind: program, command: [./{NAME}]}}", "x.yaml: workload.command[0]"),
        (
            f"workload: {{kind: program, command: [sh], directory: {NAME}}}",
            "x.yaml: workload.directory",
        ),
    ],
)
def test_a_name_that_is_too_long_for_a_file_is_that_of_none(
    call: Call, part: str, where: str
) -> None:
    lines = ["topology: clos-tiny", "workload: {kind: permutation}", "transport: {kind: mrc}"]
    lines = [part if part.startswith(line.split(":")[0]) else line for line in lines]
    Path("x.yaml").write_text("\n".join(["name: x", *lines]))
    verb = "run" if "program" in part else "validate"
    called = call(verb, "x.yaml", *(["--allow-code"] if verb == "run" else []))
    assert called.status == 2, called.err
    assert f"error: {where}" in called.err


@pytest.mark.parametrize(
    "command", [("validate", NAME), ("simulate", NAME), ("topo", NAME), ("paths", NAME, "h0", "h1")]
)
def test_an_argument_that_is_too_long_for_a_file_is_no_name(
    call: Call, command: tuple[str, ...]
) -> None:
    called = call(*command)
    assert called.status == 2, called.err
    assert f"found {NAME}, expected" in called.err


@pytest.mark.usefixtures("call")
def test_a_matrix_is_a_list_as_well() -> None:
    rows = "[{src: h0, dst: h4, size: 2 MB}, {src: h4, dst: h0, start: 5 us, size: 7}]"
    Path("x.yaml").write_text(
        f"name: x\ntopology: clos-4plane\nworkload: {{kind: connections, matrix: {rows}}}\n"
    )
    loaded = load_scenario("x.yaml").workload
    assert isinstance(loaded, Connections)
    assert [(one.src, one.dst, one.start, one.size) for one in loaded.matrix] == [
        ("h0", "h4", 0, 2_000_000),
        ("h4", "h0", 5000, 7),
    ]


@pytest.mark.parametrize(
    "text", ['description: "\\ud800"', '? "a\\udc00"\n: 1', 'description: "\\0"', 'x: "\\uffff"']
)
def test_what_no_file_can_hold_is_refused(call: Call, text: str) -> None:
    _refused(call, f"{RIGHT}{text}\n", "the character ", "expected text")


@pytest.mark.usefixtures("call")
def test_a_character_in_two_halves_as_in_json_is_one() -> None:
    Path("x.yaml").write_text(f'{RIGHT}description: "\\ud83d\\ude00"\n')
    assert load_scenario("x.yaml").description == "\N{GRINNING FACE}"


@pytest.mark.parametrize(
    "tag", ["!!bool maybe", "!!int ''", "!!timestamp abc", "!!set {a}", "!x y"]
)
def test_a_tag_is_refused_at_its_place(call: Call, tag: str) -> None:
    _refused(call, f"{RIGHT}description: {tag}\n", "description: found a tag, expected a value")


def test_aliases_and_merge_keys_are_no_repeats(call: Call) -> None:
    Path("right.yaml").write_text(
        RIGHT.split("timeline:", maxsplit=1)[0]
        + "timeline:\n"
        + "  - &one {kind: cut, target: p0_t0_0--p0_t1_1, at: 2 s, for: 1 s}\n"
        + "  - &two {<<: *one, target: p1_t0_0--p1_t1_1}\n"
        + "  - {<<: *two, at: 4 s}\n"
    )
    called = call("validate", "right.yaml")
    assert (called.status, called.err) == (0, "")
    assert "faults: 3" in called.out


def test_a_topology_is_found_from_the_scenario_file_wherever_one_is(call: Call) -> None:
    project = Path(__file__).parents[2]
    Path("sub/deep").mkdir(parents=True)
    shutil.copy(project / "topologies" / "clos-tiny.yaml", "sub/mine.yaml")
    text = RIGHT.replace("clos-4plane", "../mine.yaml").replace("h4", "h1")
    Path("sub/deep/x.yml").write_text(text)
    called = call("validate", "sub/deep/x.yml")
    assert called.status == 0, called.err
    assert "topology: clos-tiny" in called.out


@pytest.mark.parametrize("degree", ["kind: delay, extra: 6 ms", "kind: degrade, factor: 0.0001202"])
def test_the_degree_that_is_advised_is_not_refused_in_turn(call: Call, degree: str) -> None:
    Path("right.yaml").write_text(RIGHT.replace("kind: blackhole", degree))
    assert call("validate", "right.yaml").status == 0


IN_RTTS = RIGHT.replace("10 s", "80 RTT").replace("4 s", "30 RTT").replace("3 s", "25 RTT")


@pytest.mark.parametrize("dilation", [1, 10_000, 50_000])
@pytest.mark.usefixtures("call")
def test_times_in_base_rtts_keep_their_meaning_at_every_dilation(dilation: int) -> None:
    delay = "  - {kind: delay, target: p1, at: 40 RTT, for: 9 RTT, extra: 0.5 RTT}\n"
    flap = "  - {kind: flap, target: p2, at: 40 RTT, count: 3, period: 5 RTT}\n"
    Path("x.yaml").write_text(IN_RTTS + delay + flap)
    scenario = load_scenario("x.yaml", settings={"topology.dilation": dilation})
    rtt_ns = scenario.topology.propagation_rtt_ns
    assert rtt_ns == 13_080 * dilation
    assert scenario.duration == 80 * rtt_ns
    assert [fault.at for fault in scenario.timeline] == [30 * rtt_ns, 40 * rtt_ns, 40 * rtt_ns]
    assert [fault.heals_at_ns for fault in scenario.timeline] == [
        55 * rtt_ns,
        49 * rtt_ns,
        55 * rtt_ns,
    ]
    assert [fault.extra for fault in scenario.timeline if isinstance(fault, Delay)] == [6540]


def test_validate_names_the_clock_of_each_time(call: Call) -> None:
    text = IN_RTTS + "  - {kind: delay, target: p1, at: 40 RTT, for: 9 RTT, extra: 5 us}\n"
    Path("x.yaml").write_text(text)
    called = call("validate", "x.yaml")
    assert called.err == ""
    assert "timeline[0].at: 30 RTT (3.924 s emulated, 392.4 us real)" in called.out
    assert "timeline[1].extra: 5 us real (0.382 RTT, 50 ms emulated)" in called.out
    called = call("validate", "x.yaml", "--set", "timeline[0].at=4 s")
    assert "timeline[0].at: 4 s emulated (30.6 RTT, 400 us real)" in called.out
    assert "duration, timeline[0].for, timeline[1].at and 1 more: in base RTTs" in called.err
    assert "but not timeline[0].at: at another dilation they no longer fit" in called.err


def test_a_topology_has_no_times_in_base_rtts(call: Call) -> None:
    text = RIGHT.replace("clos-4plane", "{base: clos-4plane, delay: {nic: 1 RTT}}")
    _refused(call, text, "topology.delay.nic: found 1 RTT, expected a number with a unit (ns, ")
