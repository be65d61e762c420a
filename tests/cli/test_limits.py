"""Short inputs that ask for too much are refused within bounds, with one message.

They are given to one process, whose memory and CPU time are limited: what is wrong here would
otherwise take gigabytes, or hours.
"""

import json
import resource
import sys
from pathlib import Path

import pytest

from testbed.emulation.experiment.machine import Capacity
from testbed.model.checks import problems, remarks
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.files.topologies import load_topology
from testbed.model.scenario import Scenario
from testbed.model.workload import Permutation
from tests.commands import completed

MEMORY_BYTES, CPU_S = 2 << 30, 180
"""Far more than all cases together take."""

HEAD = "name: x\ntopology: clos-tiny\nduration: 3 s\n"
PERMUTATION = f"{HEAD}workload: {{kind: permutation}}\n"
LARGEST = "{name: l, planes: 8, t0_per_plane: 512, t1_per_plane: 512, hosts_per_t0: 512}"
CUT = "kind: cut, target: h0--p0_t0_0, at: 1 s, for: 1 ns"

_MERGED = "{a: 1}"
for _i in range(12):
    _MERGED = f"{{<<: [&n{_i} {_MERGED}{f', *n{_i}' * 8}]}}"

REFUSED = {
    "merges": (f"name: x\ndescription: {_MERGED}\n", "found a mapping, expected text"),
    "wide merges": (
        "a: &a {" + ", ".join(f"k{i}: 1" for i in range(900)) + "}\n"
        "b: {" + "<<: [" + ", ".join(["*a"] * 900) + "]}\n",
        "found more than 100,000 values",
    ),
    "aliases": (
        "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{b}: &{b} [{','.join([f'*{a}'] * 10)}]\n" for a, b in ("ab", "bc", "cd", "de"))
        + "f: [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\n",
        "found more than 100,000 values",
    ),
    "deep": (f"name: {'[' * 30_000}", "nested too deeply"),
    "levels": (f"{HEAD}workload: {'{a: ' * 60}1{'}' * 60}\n", "lists or mappings nested too deep"),
    "a long key": (f"{HEAD}{'k' * 900}: 1\n", "found a key of 900 characters, expected 200 at"),
    "long keys of many": (
        f"{'k' * 190}: {{{'m' * 190}: [{'1,' * 60_000}1]}}\n",
        "found more than 100,000 values",
    ),
    "a large file": ("# " + "x" * (5 << 20), "found more than 4,194,304 characters"),
    "a long name": (PERMUTATION.replace("name: x", f"name: {'x' * 300}"), "expected 100 charact"),
    "a long value": (
        PERMUTATION.replace("permutation", "k" * 100_000),
        "workload.kind: found kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk...",
    ),
    "all pairs": (
        f"name: x\ntopology: {LARGEST}\nworkload: {{kind: alltoall}}\n",
        "x.yaml:3: workload: found 68,719,214,592 flows, expected 300,000 at most",
    ),
    "queue pairs": (
        (
            f"name: x\ntopology: {LARGEST}\nworkload: {{kind: permutation}}\n"
            "transport: {kind: mrc, qps: 16}\n"
        ),
        "found 4,194,304 flows",
    ),
    "repetitions": (
        f"{PERMUTATION}timeline: [{{{CUT}, every: 2 ns}}]\n",
        "timeline: found 1000000000 faults, expected at most 10000",
    ),
    "targets": (
        (
            f"name: x\ntopology: {LARGEST}\nworkload: {{kind: write_bw, pairs: [[h0, h1]]}}\n"
            "timeline: [{kind: cut, target: links, choose: 1, at: 1 s, for: 1 s}]\n"
        ),
        "timeline[0].target: found 2,097,152 targets, expected groups of 100,000 at most",
    ),
    "planes": (
        (
            f"name: x\ntopology: {LARGEST}\nworkload: {{kind: write_bw, pairs: [[h0, h1]]}}\n"
            "timeline: [{kind: cut, target: p0, at: 1 s, for: 1 s}]\n"
        ),
        "timeline: found 1,048,576 struck directions of links, expected 1,000,000 at most",
    ),
    "flaps": (
        (
            f"{PERMUTATION}timeline: [{{kind: flap, target: h0--p0_t0_0, period: 100 ns, at: 1 s, "
            "for: 1 ms, every: 2 ms, times: 900}]\n"
        ),
        "timeline: found 18,001,800 changes of impairments",
    ),
    "probes": (
        f"{PERMUTATION}clustermapper: {{period: 1 ns}}\n",
        "clustermapper.period: found 1 ns, expected 102 ns or more",
    ),
    "many probes": (
        (
            f"name: x\ntopology: {LARGEST}\nworkload: {{kind: write_bw, pairs: [[h0, h1]]}}\n"
            "clustermapper: {period: 25 us}\n"
        ),
        "probes of 4,194,304 links, expected 20,000,000 at most",
    ),
    "a size": (
        f"{HEAD}workload: {{kind: permutation, message_size: {10**30} B}}\n",
        "workload.message_size: found",
    ),
    "a transfer": (
        f"{HEAD}workload: {{kind: connections, matrix: [{{src: h0, dst: h1, size: {2**62}}}]}}\n",
        "workload.matrix[0].size: found 4611686018427387904, expected a number of bytes, or one",
    ),
    "transfers": (
        f"{HEAD}workload: {{kind: connections, matrix: [{'{src: h0, dst: x, size: 1},' * 9999}]}}",
        "x.yaml:4: workload.matrix[0].dst: found x, expected a host of clos-tiny",
    ),
    "hosts": (
        f"{HEAD}workload: {{kind: permutation, hosts: [{'h0,' * 50_000} h1]}}\n",
        "more like this, to x.yaml:4: workload.hosts[49999]: expected each host once",
    ),
    "digits": (f"{PERMUTATION}seed: {'9' * 5000}\n", "seed: found 99999"),
    "an exponent": (f"{PERMUTATION}seed: 1e99999999\n", "seed: found 1e99999999"),
}
"""Files, and what is said of them."""

OPTIONS = {
    "a deep path": (f"--set={'a.' * 3000}a=1", "200 characters at most"),
    "a deep value": (f"--set=name={'[' * 30_000}", "expected a value in YAML"),
    "a wide value": (f"--set=name=[{'1,' * 200_000}1]", "found more than 100,000 values"),
    "levels": (f"--set=workload={'{a: ' * 60}1{'}' * 60}", "nested too deeply"),
    "half a character": ('--set=description="\\ud800"', "found the character \\ud800"),
}
"""Options of `validate`, and what is said of them."""

CHILD = """
import contextlib, io, json, resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))
resource.setrlimit(resource.RLIMIT_CPU, ({cpu}, {cpu}))
from testbed.cli import main
answers = []
for text, options in json.load(sys.stdin):
    Path("x.yaml").write_text(text)
    sys.argv = ["testbed", "validate", "./x.yaml", *options]
    said, status = io.StringIO(), None
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
    answers.append((status, said.getvalue()))
json.dump(answers, sys.stdout)
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """The exit status and the message of each case, all from one process with limits."""
    cases: dict[str, tuple[str, list[str]]] = {
        name: (text, []) for name, (text, _) in REFUSED.items()
    }
    cases |= {f"option: {name}": (PERMUTATION, [text]) for name, (text, _) in OPTIONS.items()}
    largest = f"name: x\ntopology: {LARGEST}\nworkload: {{kind: permutation}}\nduration: 2 s\n"
    cases["the largest fabric"] = largest, []
    done = completed(
        [sys.executable, "-P", "-c", CHILD.format(memory=MEMORY_BYTES, cpu=CPU_S)],
        input=json.dumps([*cases.values()]),
        cwd=tmp_path_factory.mktemp("limits"),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(cases, map(tuple, json.loads(done.stdout)), strict=True))


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_asks_for_too_much_is_refused(
    name: str, answers: dict[str, tuple[int, str]]
) -> None:
    status, said = answers[name]
    assert status == 2, said
    assert REFUSED[name][1] in said
    assert "Traceback" not in said
    assert len(said) < 6000


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_that_asks_for_too_much_is_refused(
    name: str, answers: dict[str, tuple[int, str]]
) -> None:
    status, said = answers[f"option: {name}"]
    assert status == 2, said
    assert said.startswith("error: --set")
    assert OPTIONS[name][1] in said
    assert len(said) < 1000


def test_the_permutation_of_the_largest_fabric_is_valid(
    answers: dict[str, tuple[int, str]],
) -> None:
    status, said = answers["the largest fabric"]
    assert status == 0, said


def test_the_limits_are_in_force(tmp_path: Path) -> None:
    """Else the cases above would pass where they take all memory."""
    child = f"{CHILD.split('from testbed', maxsplit=1)[0]}\nbytearray({MEMORY_BYTES})"
    done = completed(
        [sys.executable, "-P", "-c", child.format(memory=MEMORY_BYTES, cpu=CPU_S)], cwd=tmp_path
    )
    assert "MemoryError" in done.stderr
    assert resource.getrlimit(resource.RLIMIT_AS)[0] != MEMORY_BYTES


def test_no_object_is_made_for_each_host_of_a_fabric(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest fabric has 262,144: what is the same for all is found once."""
    topology = load_topology("clos-16host")
    scenario = Scenario(name="x", topology=topology, workload=Permutation(), duration="10 s")
    made = list[int]()
    host = Topology.host

    def counted(self: Topology, index: int) -> Node:
        made.append(index)
        return host(self, index)

    monkeypatch.setattr(Topology, "host", counted)
    assert not problems(scenario)
    remarks(scenario)
    assert Capacity(1.0, 1.0, 1.0).load(scenario) > 0
    assert len(made) < len(scenario.flows)
