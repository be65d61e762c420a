"""Scenarios with several jobs: what is wrong with them is said before anything is run."""

import json
from pathlib import Path

import pytest
import yaml

from testbed.model.files.scenarios import load_scenario
from tests.cli.conftest import Call

HEAD = "name: mine\ntopology: clos-4plane\nduration: 40 RTT\n"

A = "{name: a, workload: {pairs: [[h0, h4]]}}"

WRONG = {
    "none": ("jobs: []", "workload: ", "or jobs, at least one"),
    "a workload beside them": (
        f"workload: {{pairs: [[h0, h4]]}}\njobs: [{A}]",
        "mine.yaml:4: workload: ",
        "no workload beside jobs",
    ),
    "no name": ("jobs: [{workload: {pairs: [[h0, h4]]}}]", "jobs[0].name: ", "required"),
    "a name that is a path": ("jobs: [{name: a/b, workload: {}}]", "jobs[0].name: ", "letters"),
    "no workload": ("jobs: [{name: a}]", "jobs[0].workload: ", "required"),
    "two of one name": (
        f"jobs: [{A}, {A}]",
        "jobs[1].name: found a a second time",
        "the first is jobs[0]",
    ),
    "a start after the end": (
        "jobs: [{name: a, start: 41 RTT, workload: {pairs: [[h0, h4]]}}]",
        "jobs[0].start: found ",
        "before the run ends",
    ),
    "a host that is not there": (
        f"jobs: [{A}, {{name: b, workload: {{kind: allreduce, hosts: [h0, h9]}}}}]",
        "mine.yaml:4: jobs[1].workload.hosts[1]: found h9",
        "a host of clos-4plane",
    ),
    "a single host": (
        "jobs: [{name: a, workload: {kind: allreduce, hosts: [h0]}}]",
        "jobs[0].workload.hosts: ",
        "2 or more",
    ),
    "a host as a number": (
        "jobs: [{name: a, workload: {kind: allreduce, hosts: [0, h1]}}]",
        "jobs[0].workload.hosts[0]: found 0",
        "hosts have names: h0",
    ),
    "an unknown kind": (
        "jobs: [{name: a, workload: {kind: alreduce}}]",
        "jobs[0].workload.kind: found alreduce",
        "did you mean allreduce?",
    ),
    "a matrix that is not there": (
        "jobs: [{name: a, workload: {kind: connections, matrix: no.cm}}]",
        "jobs[0].workload.matrix: found no.cm",
        "a file, relative",
    ),
    "a program that is not there": (
        "jobs: [{name: p, workload: {kind: program, command: [no-such]}}]",
        "jobs[0].workload.command[0]: found no-such",
        "a program on PATH",
    ),
    "an unknown metric": (
        f"jobs: [{A}]\nexpect: {{jobs: {{interferense: 1}}}}",
        "expect.jobs.interferense: ",
        "did you mean interference?",
    ),
    "an unknown metric of one": (
        "jobs: [{name: a, workload: {pairs: [[h0, h4]]}, expect: {job: {tim_rtt: 1}}}]",
        "jobs[0].expect.job.tim_rtt: ",
        "did you mean time_rtt?",
    ),
    "operations where there are none": (
        "jobs: [{name: a, workload: {pairs: [[h0, h4]]}, expect: {operations: {count: 1}}}]",
        "jobs[0].expect.operations: ",
        "the workload write_bw does not have",
    ),
    "metrics of jobs of a workload": (
        "workload: {pairs: [[h0, h4]]}\nexpect: {jobs: {hosts: 2}}",
        "expect.jobs: found metrics of jobs, where there is a single workload",
        "make it one of jobs",
    ),
    "too many": (
        "jobs: ["
        + ", ".join(f"{{name: j{i}, workload: {{pairs: [[h0, h4]]}}}}" for i in range(1001))
        + "]",
        "jobs: ",
        "1000 at most",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_with_its_place(call: Call, name: str) -> None:
    text, place, expected = WRONG[name]
    Path("mine.yaml").write_text(f"{HEAD}{text}\n")
    command = "run" if "no-such" in text else "validate"
    called = call(command, "./mine.yaml", *(["--allow-code"] if command == "run" else []))
    assert called.status == 2, called
    assert place in called.err
    assert expected in called.err
    assert "Traceback" not in called.err


def test_commands_of_jobs_are_shown_and_need_consent(call: Call) -> None:
    program = "{name: p, workload: {kind: program, command: [sh, -c, 'true']}}"
    Path("mine.yaml").write_text(f"{HEAD}jobs: [{program}]\n")
    facts = json.loads(call("validate", "./mine.yaml", "--json").out)["facts"]
    assert facts["executes"] == {"jobs[0].workload.command": "sh -c true"}
    called = call("run", "./mine.yaml")
    assert called.status == 2
    assert "jobs[0].workload.command" in called.err
    assert "--allow-code" in called.err


def test_paths_of_jobs_are_relative_to_the_scenario(call: Call) -> None:
    Path("there").mkdir()
    Path("there/m.cm").write_text("Nodes 8\nConnections 1\n0->4 start 0 size 1000\n")
    jobs = [{"name": "m", "workload": {"kind": "connections", "matrix": "m.cm"}}]
    text = yaml.safe_dump({**yaml.safe_load(HEAD), "jobs": jobs})
    Path("there/mine.yaml").write_text(text)
    assert load_scenario("there/mine.yaml").flows == (("h0", "h4", 0),)
    assert call("validate", "there/mine.yaml").status == 0


def test_a_thousand_jobs_are_checked_in_no_time(call: Call) -> None:
    jobs = [{"name": f"j{i}", "workload": {"pairs": [["h0", "h4"]]}} for i in range(1000)]
    text = yaml.safe_dump({**yaml.safe_load(HEAD), "jobs": jobs})
    Path("mine.yaml").write_text(text)
    called = call("validate", "./mine.yaml")
    assert called.status == 0, called
    assert "flows: 2000" in called.out
