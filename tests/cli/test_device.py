"""`testbed device`: what is wrong with its arguments is said before anything is started."""

from pathlib import Path

import pytest

from testbed.cli.device import spread
from testbed.model.errors import InputError
from testbed.model.files.topologies import load_topology
from tests.cli.conftest import Call

HEAD = "name: mine\ntopology: clos-tiny\nduration: 10 s\n"
OWN = "workload: {kind: program, command: [sh]}\n"
RUN = ("--", "true")

JOBS = """jobs:
  - {name: mine, workload: {kind: program, hosts: [h0], command: [sh]}}
  - {name: ring, workload: {kind: allreduce, hosts: [h0, h1]}}
"""

WRONG: dict[str, tuple[str, tuple[str, ...], str, str]] = {
    "nothing to run": ("", (), "PROGRAM: found none", "a program after --"),
    "no such program": ("", ("--", "no-such"), "command[0]: found no-such", "a program on PATH"),
    "perftest": (
        "",
        ("--set", "workload.env={PATH: /nowhere}", "--", "ib_write_lat"),
        "found ib_write_lat",
        "apt install perftest",
    ),
    "too many hosts": (OWN, ("-n", "5", *RUN), "-n: found 5", "at most 2, the hosts of clos-tiny"),
    "another workload": (
        "workload: {kind: permutation}\n",
        (),
        "workload.kind: found permutation",
        "testbed simulate, or a command after --",
    ),
    "jobs without a program": (
        JOBS.replace("kind: program, hosts: [h0], command: [sh]", "kind: alltoall"),
        (),
        "jobs[0].workload.kind: found alltoall",
        "remedy: testbed simulate\n",
    ),
    "a program for jobs": (JOBS, RUN, "PROGRAM: found true", "./mine.yaml has jobs, which have"),
    "hosts for jobs": (JOBS, ("-n", "2"), "-n: found 2", "write it into the file"),
    "its own command": (OWN, (), "workload.command: found sh", "add --allow-code"),
    "a killed process": (
        f"{OWN}timeline: [{{kind: kill, target: h0, at: 1 s}}]\n",
        RUN,
        "timeline[0].kind: found kill",
        "a simulated fabric has none",
    ),
    "a frozen one": (
        f"{OWN}timeline: [{{kind: freeze, target: h0, at: 1 s, for: 1 s}}]\n",
        RUN,
        "timeline[0].kind: found freeze",
        "testbed run, on the emulated fabric",
    ),
    "RoCE": (f"{OWN}transport: {{kind: roce}}\n", RUN, "transport.kind: found roce", "mrc"),
    "a dilation": ("", ("--set", "topology.dilation=0", *RUN), "topology.dilation: found 0", ""),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_with_its_place(call: Call, name: str) -> None:
    content, arguments, place, expected = WRONG[name]
    options: tuple[str, ...] = ()
    if content:
        Path("mine.yaml").write_text(f"{HEAD}{content}")
        options = ("--scenario", "./mine.yaml")
    called = call("device", *options, *arguments)
    assert called.status == 2, called
    assert place in called.err
    assert expected in called.err
    assert "Traceback" not in called.err
    assert not Path("results").exists()


def test_hosts_are_spread_over_the_racks() -> None:
    topology = load_topology("clos-4plane")
    assert spread(topology, 2) == ["h0", "h4"]
    assert spread(topology, 5) == ["h0", "h1", "h2", "h4", "h5"]
    assert spread(topology, 8) == [host.name for host in topology.hosts]
    with pytest.raises(InputError, match="at most 8"):
        spread(topology, 9)
