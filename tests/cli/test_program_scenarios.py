"""Scenarios that run programs: what is wrong with them is said before a fabric is built."""

import json
from pathlib import Path

import pytest

from testbed.emulation.experiment.programs import require_programs
from testbed.model.errors import MachineError
from testbed.model.files.scenarios import load_scenario
from testbed.model.workload import Program
from tests.cli.conftest import Call
from tests.waiting import wait_until

HEAD = "name: mine\ntopology: clos-tiny\nduration: 10 s\n"

PLAIN = "workload: {kind: program, command: [sh]}"

CUT = "{kind: cut, target: p0_t0_0--p0_t1_1, at: 1 s, for: 1 s"

WRONG = {
    "no command": ("workload: {kind: program}", "workload.command: ", "a value"),
    "an empty one": ("workload: {kind: program, command: []}", "workload.command: ", ""),
    "a blank": ("workload: {kind: program, command: [' ']}", "command[0]: ", "the name of a prog"),
    "a NUL": (r'workload: {kind: program, command: ["a\0b"]}', "command[0]: ", "text without it"),
    "not there": ("workload: {kind: program, command: [no-such]}", "[0]: found no-such", "PATH"),
    "perftest": (
        "workload: {kind: program, command: [ib_write_lat], env: {PATH: /nowhere}}",
        "found ib_write_lat",
        "apt install perftest",
    ),
    "no such file": (
        "workload: {kind: program, command: [./no]}",
        "which is not there",
        "relative",
    ),
    "not executable": (
        "workload: {kind: program, command: [./mine.yaml], directory: .}",
        "command[0]: found ./mine.yaml",
        "chmod +x",
    ),
    "not there on one host": (
        "workload: {kind: program, command: ['./{host}']}",
        "command[0]: found ./h1, which is not there",
        "an executable file",
    ),
    "no directory": (
        "workload: {kind: program, command: [sh], directory: gone}",
        "workload.directory: found",
        "gone, which is not there",
    ),
    "an unknown host": ("workload: {kind: program, command: [sh], hosts: [h0, h9]}", "h9", ""),
    "a single host": ("workload: {kind: program, command: [sh], hosts: [h0]}", "hosts", ""),
    "a variable": (
        "workload: {kind: program, command: [sh], env: {1X: y}}",
        "workload.env: found the key '1X'",
        "letters, digits and '_', not beginning with a digit",
    ),
    "a directory as command": (
        "workload: {kind: program, command: [/tmp]}",
        "command[0]: found /tmp, which is no file",
        "an executable file",
    ),
    "RoCE": (
        f"{PLAIN}\ntransport: {{kind: roce}}",
        "transport.kind: found roce",
        "the device of programs has no other",
    ),
    "several QPs": (
        f"{PLAIN}\ntransport: {{qps: 4}}",
        "transport.qps: found 4",
        "leave it out",
    ),
    "an operator": (
        f"{PLAIN}\noperator: [{{kind: disable, host: h0, plane: 0, at: 1 s}}]",
        "operator",
        "",
    ),
    "a fault after an operation of no program": (
        f"workload: {{kind: allreduce}}\ntimeline: [{CUT}, after: {{operation: x, number: 3}}}}]",
        "timeline[0].after: found x 3",
        "kind: program",
    ),
    "an operation without a number": (
        f"{PLAIN}\ntimeline: [{CUT}, after: {{operation: x}}}}]",
        "timeline[0].after.number: ",
        "a value",
    ),
    "an operation whose name has a blank": (
        f"{PLAIN}\ntimeline: [{CUT}, after: {{operation: x y, number: 3}}}}]",
        "timeline[0].after.operation: found 'x y'",
        "a name without blanks",
    ),
    "an operation of no job": (
        f"jobs: [{{name: a, {PLAIN}}}]\ntimeline: [{CUT}, after: {{operation: x, number: 3}}}}]",
        "timeline[0].after.operation: found x",
        "a name after that of its job: a/x",
    ),
    "an operation that may begin while another fault is in force": (
        f"{PLAIN}\ntimeline: [{CUT}}}, {CUT}, after: {{operation: x, number: 3}}}}]",
        "timeline[",
        "one cut of a place at a time",
    ),
    "a busy host": (
        f"{PLAIN}\ntimeline: [{{kind: busy, target: h0, at: 1 s, for: 1 s}}]",
        "timeline[0]",
        "",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_with_its_place(call: Call, name: str) -> None:
    text, place, expected = WRONG[name]
    Path("mine.yaml").write_text(f"{HEAD}{text}\n")
    Path("h0").touch(mode=0o755)
    called = call("run", "./mine.yaml", "--allow-code")
    assert called.status == 2, called
    assert place in called.err
    assert expected in called.err
    assert "Traceback" not in called.err
    assert not Path("results").exists()


def test_the_output_of_several_runs_is_not_mixed(call: Call) -> None:
    Path("mine.yaml").write_text(f"{HEAD}{PLAIN}\n")
    options = ("--allow-code", "--print-output", "--repeat", "2")
    called = call("run", "./mine.yaml", *options)
    assert called.status == 2
    assert "--print-output: found several runs, expected one run" in called.err


def test_the_simulator_has_no_processes(call: Call) -> None:
    Path("mine.yaml").write_text(f"{HEAD}workload: {{kind: program, command: [sh]}}\n")
    called = call("simulate", "./mine.yaml", "--allow-code")
    assert called.status == 2
    assert "programs run in processes, and the simulator has none" in called.err


def test_validate_shows_the_command_as_it_is(call: Call) -> None:
    command = '[sh, "-c", "[ red ] && [red]$X"]'
    Path("mine.yaml").write_text(f"{HEAD}workload: {{kind: program, command: {command}}}\n")
    shown = "sh -c '[ red ] && [red]$X'"
    assert shown in call("validate", "./mine.yaml").out
    facts = json.loads(call("validate", "./mine.yaml", "--json").out)["facts"]
    assert facts["executes"] == {"workload.command": shown}


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("env", "{LD_PRELOAD: ./x.so, PATH: .}", "LD_PRELOAD, PATH"),
        ("check", "[-c, ./x]", "-c ./x"),
        ("directory", ".", ""),
    ],
)
def test_a_command_that_is_typed_lets_nothing_else_of_a_file_decide_what_runs(
    call: Call, key: str, value: str, shown: str
) -> None:
    workload = f"{{kind: program, command: [unused], {key}: {value}}}"
    Path("mine.yaml").write_text(f"{HEAD}workload: {workload}\n")
    shown = shown or str(Path.cwd())
    for words in (
        ("device", "--scenario", "./mine.yaml", "--", "true"),
        ("run", "./mine.yaml", "--set", "workload.command=[sh]"),
    ):
        called = call(*words)
        assert called.status == 2
        assert f"./mine.yaml: workload.{key}: found {shown}, expected a scenario" in called.err
        assert "add --allow-code" in called.err
        assert "workload.command" not in called.err
    facts = json.loads(call("validate", "./mine.yaml", "--json").out)["facts"]
    assert facts["executes"] == {"workload.command": "unused", f"workload.{key}": shown}


def test_what_ships_and_what_an_option_names_needs_no_flag(call: Call) -> None:
    options = ("--set", "workload={kind: program, command: [no-such]}")
    called = call("run", "healthy", *options)
    assert "--allow-code" not in called.err
    assert "workload.command[0]: found no-such" in called.err
    called = call("run", "program", "--set", "workload.env={PATH: /nowhere}")
    assert "--allow-code" not in called.err
    assert "workload.command[0]: found sh" in called.err


def test_what_an_option_names_needs_no_flag_in_a_job_or_for_the_device(call: Call) -> None:
    workload = "workload: {kind: program, hosts: [h0, h1], command: [no-such]}"
    Path("one.yaml").write_text(f"{HEAD}{workload}\n")
    Path("jobs.yaml").write_text(f"{HEAD}jobs: [{{name: a, {workload}}}]\n")
    device = ("device", "--scenario", "./one.yaml", "--set")
    for words in (
        ("run", "./jobs.yaml", "--set", f"jobs=[{{name: b, {workload}}}]"),
        ("run", "./jobs.yaml", "--set", "jobs[0].workload.command=[no-such]"),
        (*device, "workload.command=[no-such]"),
        (*device, "workload.env={A: b}", "--", "no-such"),
    ):
        called = call(*words)
        assert "--allow-code" not in called.err, words
        assert "workload.command[0]: found no-such" in called.err, words
    refused = call(*device, "workload.env={A: b}")
    assert "./one.yaml: workload.command: found no-such, expected a scenario" in refused.err


@pytest.mark.usefixtures("call")
def test_a_command_and_its_directory_are_those_of_the_host() -> None:
    Path("there").mkdir()
    Path("there/mine.yaml").write_text(
        f"{HEAD}workload: {{kind: program, hosts: [h1, h0], directory: x, env: {{N: 1}}, "
        "command: [run, '{host}-{rank}', '{hosts} {other} ${HOME}', 7]}\n"
    )
    scenario = load_scenario("there/mine.yaml")
    program = scenario.workload
    assert isinstance(program, Program)
    words = ["run", "h0-1", "h1,h0 {other} ${HOME}", "7"]
    assert program.command_of(1, scenario.topology) == words
    assert program.directory == str(Path("there/x").absolute())
    assert program.env == {"N": "1"}
    assert scenario.flows == (("h1", "h0", 0), ("h0", "h1", 0))


def test_a_check_ends_with_its_program_and_leaves_nothing(tmp_path: Path) -> None:
    """Even if what it has left behind keeps its output open."""
    pid, script = tmp_path / "pid", "sleep 600 & echo $! > $PID; echo no licence; exit 3"
    load = f"{HEAD}{PLAIN[:-1]}, check: [-c, '{script}'], env: {{PID: {pid}}}}}\n"
    (tmp_path / "mine.yaml").write_text(load)
    scenario = load_scenario(str(tmp_path / "mine.yaml"))
    with pytest.raises(MachineError, match=r"(?s)says: .*no licence"):
        require_programs(scenario)
    wait_until(lambda: not is_running(int(pid.read_text())), "its child has ended")


def is_running(pid: int) -> bool:
    """Whether a process has not ended; one that nobody has waited for yet has no command line."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return False
