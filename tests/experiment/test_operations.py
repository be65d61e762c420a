"""What programs report of their operations."""

from pathlib import Path

from testbed.emulation.experiment.programs import ReportedOperations
from testbed.model.scenario import Job
from testbed.model.workload import Program
from testbed.results.records import OPERATIONS, Recorder, raw_path, read_raw


def reported(
    tmp_path: Path, *parts: tuple[str, bytes, int]
) -> tuple[list[tuple[object, ...]], int]:
    """The rows that a host's bytes at these times leave, and how many lines were refused."""
    file = raw_path(tmp_path, "programs", OPERATIONS)
    with Recorder(file, OPERATIONS) as recorder:
        job = Job(name="mine", workload=Program(command=("sh",)))
        operations = ReportedOperations(recorder, 2, job, lambda *_: None)
        for host, data, now_ns in parts:
            operations.take(host, data, now_ns)
    return read_raw(file, OPERATIONS, 0).rows(), operations.refused.total()


def test_an_operation_lasts_from_its_first_line_to_its_second(tmp_path: Path) -> None:
    rows, refused = reported(
        tmp_path,
        ("h0", b"begin allreduce 3 1048576\nbegin step 3\nend all", 1_000_000_000),
        ("h1", b"begin allreduce 3 1048576\n", 2_000_000_000),
        ("h0", b"reduce 3\n\n", 4_000_000_000),
        ("h1", b"end allreduce 3\n", 5_000_000_000),
    )
    assert rows == [
        (4.0, 1.0, "h0", "mine/allreduce", 3, 1048576, 2),
        (5.0, 2.0, "h1", "mine/allreduce", 3, 1048576, 2),
    ]
    assert not refused


def test_other_lines_change_nothing(tmp_path: Path) -> None:
    wrong = (
        b"begin\nend x 1\nbegin x -1\nbegin x 1 big\nbegin x 99999999999\n\xff\nbegin a b c d e\n"
    )
    rows, refused = reported(tmp_path, ("h0", wrong, 1), ("h0", b"x" * 100_000, 2))
    assert (rows, refused) == ([], 7)


def test_the_first_line_of_a_host_that_reports_nothing_is_kept(tmp_path: Path) -> None:
    with Recorder(raw_path(tmp_path, "programs", OPERATIONS), OPERATIONS) as recorder:
        job = Job(name="mine", workload=Program(command=("sh",)))
        operations = ReportedOperations(recorder, 2, job, lambda *_: None)
        operations.take("h0", b"begin x 1\nbegin x 1 NaN\nend x 7\n", 1)
        operations.take("h1", b"\x1b" * 1000 + b"\n", 1)
    assert operations.refused == {"h0": 2, "h1": 1}
    assert operations.first_refused == {"h0": "begin x 1 NaN", "h1": "\x1b" * 80}


def test_a_line_that_is_too_long_is_none(tmp_path: Path) -> None:
    """Python does not read a number of 5,000 digits; a name is kept as long as the run."""
    digits = b"9" * 5000
    lines = b"begin x %b\nend x %b\nbegin x 1 %b\nbegin %b 1\n" % (digits, digits, digits, digits)
    rows, refused = reported(tmp_path, ("h0", lines, 1), ("h1", digits, 2), ("h1", b" 1\n", 3))
    assert (rows, refused) == ([], 5)


def test_there_is_an_end_of_names_and_open_operations(tmp_path: Path) -> None:
    many = b"".join(b"begin n%d 0\n" % number for number in range(200))
    more = b"".join(b"begin n0 %d\n" % number for number in range(20_000))
    rows, refused = reported(tmp_path, ("h0", many, 1), ("h0", more, 2))
    assert not rows
    assert refused == 100 + 20_000 - (10_000 - 100) - 1
