"""The backend of torch.distributed, in the hosts of a live fabric and the Python that has torch."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.model.errors import ExitStatus
from testbed.runs.result import Result
from tests.commands import completed
from tests.perftest.test_programs import PROJECT, TESTBED, run_testbed

PROGRAMS = Path(__file__).with_name("torch_programs")
RANK_MB = 231
"""What a rank takes."""

PYTHONS = {
    "torch 2": (
        os.environ.get("TORCH_PYTHON", ""),
        "DIR/bin/pip install torch==2.13.0+cpu numpy; TORCH_PYTHON=DIR/bin/python",
    ),
    "torch 1.13": ("/usr/bin/python3", "apt install python3-torch"),
}

pytestmark = [pytest.mark.root, pytest.mark.long]


@pytest.fixture(params=PYTHONS)
def python(request: pytest.FixtureRequest) -> str:
    path, remedy = PYTHONS[request.param]
    check = [path, "-c", "import numpy, torch"]
    if not path or subprocess.run(check, capture_output=True, check=False).returncode:
        pytest.skip(f"needs {request.param}: {remedy}")
    return path


def ranks(python: str, program: Path, count: int, tmp_path: Path, *arguments: str) -> list[str]:
    """Run a program as so many ranks of clos-4plane; returns what each printed."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    (free_kb,) = (int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    if free_kb < count * RANK_MB * 1000:
        pytest.skip(f"needs {count * RANK_MB} MB of memory, found {free_kb // 1000}")
    outputs = [tmp_path / f"rank{rank}" for rank in range(count)]
    job = f"WORLD_SIZE={count} MASTER_ADDR=198.18.0.1 MASTER_PORT=29500"
    few = "GLOO_SOCKET_IFNAME=mgmt OMP_NUM_THREADS=1"
    typed = "".join(
        f"h{rank} {few} {job} RANK={rank} {python} {program} {' '.join(arguments)} "
        f"> {outputs[rank]} 2>&1 {'&' if rank else ''}\n"
        for rank in reversed(range(count))
    )
    typed += "".join(f"h{rank} wait\n" for rank in range(1, count))
    run_testbed("shell", "clos-4plane", typed=typed, status=0)
    return [output.read_text() for output in outputs]


def test_collectives_are_equal_on_all_ranks(python: str, tmp_path: Path) -> None:
    """To numpy in the documented order, and to gloo: the program compares."""
    found = ranks(python, PROGRAMS / "collectives.py", 8, tmp_path)
    for rank, text in enumerate(found):
        assert f"rank {rank}: all equal" in text, text


def test_all_ranks_get_the_error_of_one(python: str, tmp_path: Path) -> None:
    found = ranks(python, PROGRAMS / "errors.py", 4, tmp_path)
    rows = [
        (rank, what, error)
        for rank, text in enumerate(found)
        for what, error in re.findall(rf"^rank {rank} (.*?): (.*)$", text, re.MULTILINE)
    ]
    differing = {
        "small": "all_reduce of 11 elements of float32 with SUM where",
        "large": "all_reduce of 50001 elements of float32 with SUM",
        "tree or ring": "all_reduce of 50000 elements of float32 with SUM",
        "type": "all_reduce of 4 elements of int8 with SUM",
        "broadcast": "broadcast of 0 elements of float32 (root 0)",
        "root": "broadcast of 3 elements of float32 (root 1)",
        "reduce": "reduce of 5 elements of float32 with SUM (root 0)",
        "gather": "gather of 5 elements of float32 (root 0)",
        "scatter": "scatter of 5 elements of float32 (root 0)",
        "all_gather": "all_gather of 5 elements of float32",
        "all_to_all": "all_to_all of 2 elements of float32",
        "call": "calls barrier",
    }
    for what, text in differing.items():
        for again in ("", " again"):
            errors = [error for _, of, error in rows if of == f"{what}{again} MrcError"]
            assert len(errors) == 4, (what, found)
            assert all(text.removesuffix(" where") in error for error in errors), errors
    errors = [error for _, of, error in rows if of == "transfer MrcError"]
    assert len(errors) == 2
    assert all("4 elements" in error and "3 elements" in error for error in errors)
    for what, text in {
        "quantized": "found a tensor of qint8, expected one of float32, float64,",
        "sparse": "expected a dense one on the CPU",
        "reduction": "found BAND, expected one of SUM, AVG, PRODUCT, MIN, MAX",
        "operation": "found a coalesced operation, expected one of all_reduce, reduce, broadcast",
        "no source": "recv(tensor, src=RANK)",
    }.items():
        errors = [error for _, of, error in rows if of == f"{what} MrcError"]
        assert len(errors) == 4, (what, found)
        assert all(text in error for error in errors), errors
    for what in ("left", "ended"):
        of = [
            rank for rank, of, error in rows if of == f"{what} MrcError" and "rank 2 has" in error
        ]
        assert of == [0, 1, 3], (what, found)
    assert (0, "killed MrcError", "rank 1 does not answer") in [
        (rank, of, error.partition(" during")[0]) for rank, of, error in rows
    ], found


def test_the_example_trains(python: str, tmp_path: Path) -> None:
    """The loss falls, and the weights at the end depend on nothing but the seed."""
    sums = set[str]()
    for _ in range(2):
        text, *_ = ranks(python, PROJECT / "examples" / "train.py", 4, tmp_path, "--steps", "12")
        losses = [float(loss) for loss in re.findall(r"loss (\S+)", text)]
        assert len(losses) == 12, text
        assert losses[-1] < losses[0]
        sums |= {*re.findall(r"weights (\w+)", text)}
    assert len(sums) == 1


def test_the_model_is_the_same_whatever_link_dies(python: str, tmp_path: Path) -> None:
    """The scenario torch-training with fewer hosts and steps; the link dies with its step 3."""
    sums = set[str]()
    for settings in (
        ("timeline[0].after.number=3", "timeline[0].at=0 s", "timeline[0].for=5 s"),
        ("timeline=[]",),
    ):
        few = ("workload.hosts=[h0,h4,h1,h5]", "expect={}", f"workload.command[0]={python}")
        given = [f"--set={each}" for each in (*few, "workload.command[3]=6", *settings)]
        done = completed(
            [*TESTBED, "run", "torch-training", "--force", "--results", tmp_path, *given]
        )
        assert done.returncode in {ExitStatus.AS_EXPECTED, ExitStatus.UNTRUSTED}, done.stderr
        found = Result(tmp_path / "torch-training" / "latest")
        assert [program.failed for program in found.summary.programs] == [False] * 4
        text = (found.directory / "programs" / "h0.log").read_text()
        sums |= {*re.findall(r"weights (\w+)", text)}
        steps = found.tables["operations"].filter(number=3)
        for fault in found.summary.faults:
            assert fault.requested_s == pytest.approx(min(steps["start_t"].to_list()), abs=1e-6)
            assert any(flow.packets_lost for flow in fault.flows)
    assert len(sums) == 1


def test_without_torch_the_scenario_says_how_to_get_it() -> None:
    """Before anything is built."""
    done = completed(
        [*TESTBED, "run", "torch-training", f"--set=workload.command[0]={sys.executable}"]
    )
    assert done.returncode == ExitStatus.MACHINE_CANNOT
    assert "has no torch: apt install python3-torch" in done.stderr


def test_outside_a_host_it_says_what_to_do(python: str) -> None:
    program = (
        "import torch.distributed as d, torch_mrc\n"
        "d.init_process_group('mrc', store=d.HashStore(), rank=0, world_size=2)"
    )
    path = str(PROJECT / "testbed" / "device")
    done = completed([python, "-c", program], env={"PYTHONPATH": path, "PATH": os.environ["PATH"]})
    assert "Start the program in a host of `testbed shell`" in done.stderr


def test_works_can_be_waited_for_with_a_timeout(python: str) -> None:
    """Those of a rank that is alone, which needs no host, and those of other backends."""
    program = (
        "import datetime, torch, torch.distributed as d, torch_mrc\n"
        "for backend in ('mrc', 'gloo'):\n"
        "    d.init_process_group(backend, store=d.HashStore(), rank=0, world_size=1)\n"
        "    work = d.all_reduce(torch.ones(3), async_op=True)\n"
        "    assert work.wait() and work.wait(timeout=datetime.timedelta(seconds=9))\n"
        "    d.destroy_process_group()"
    )
    path = str(PROJECT / "testbed" / "device")
    done = completed([python, "-c", program], env={"PYTHONPATH": path, "PATH": os.environ["PATH"]})
    assert done.returncode == 0, done.stderr
