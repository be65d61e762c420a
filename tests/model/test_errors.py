import json
import signal

import pytest

from testbed.model.errors import (
    CrashError,
    ExitStatus,
    InputError,
    MachineError,
    Problem,
    RunFailedError,
    exit_status_of,
    is_crash,
)
from testbed.sandbox.channel import decode_error, encode_error


def test_a_problem_says_where_found_expected_and_remedy() -> None:
    problem = Problem("x.yaml:3: a.b", "4", "a time", "write 4 s")
    assert str(problem) == "x.yaml:3: a.b: found 4, expected a time\n  remedy: write 4 s"
    assert str(Problem("x.yaml:3: a.b", "", "a time")) == "x.yaml:3: a.b: expected a time"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InputError([Problem("a", "b", "c"), Problem("d", "e", "f")]), 2),
        (InputError(problems=[Problem("a", "b", "c")]), 2),
        (MachineError("no Open vSwitch", "apt install openvswitch-switch"), 3),
        (MachineError(what="no root", remedy="sudo"), 3),
        (RunFailedError("h0 ended"), 4),
        (CrashError("h0 ended: exit status 5"), 5),
    ],
)
def test_errors_cross_processes_and_know_their_exit_status(
    error: InputError | MachineError | RunFailedError, status: int
) -> None:
    copy = decode_error(json.loads(json.dumps(encode_error(error))))
    assert type(copy) is type(error)
    assert str(copy) == str(error) != ""
    assert copy.exit_status == ExitStatus(status)
    assert len({error, copy}) == 2


@pytest.mark.parametrize(
    ("exit_code", "means"),
    [
        (1, 1),
        (3, 3),
        (4, 4),
        (5, 5),
        (-signal.SIGKILL, 4),
        (128 + signal.SIGTERM, 4),
        (-signal.SIGSEGV, 5),
        (128 + signal.SIGABRT, 5),
        (0, 5),  # without a result
        (77, 5),
    ],
)
def test_what_a_command_without_a_result_means(exit_code: int, means: int) -> None:
    assert exit_status_of(exit_code) == ExitStatus(means)
    assert is_crash(exit_code) == (means == 5 and exit_code not in {0, 77})
