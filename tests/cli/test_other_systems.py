"""What works on systems that lack what Linux has, and what the rest says there."""

from pathlib import Path

import pytest

from testbed.model.errors import ExitStatus
from tests.other_systems import LACKING, execute

pytestmark = pytest.mark.programs

SCENARIO = """\
name: tiny
topology: {base: clos-tiny, dilation: auto}
duration: 3 s
workload: {kind: write_bw, pairs: [[h0, h1]], message_size: 64 KiB}
"""

WITHOUT_EMULATION = """
call("list")
call("validate", "tiny.yaml")
call("schema", "--directory", "schema")
call("paths", "clos-tiny", "h0", "h1")
call("topo", "clos-tiny")
call("figures", "--list")
call("bench", "--list")
call("simulate", "tiny.yaml", "--set", "topology.dilation=20000", "--no-figures")
call("simulate", "tiny.yaml", "--set", "topology.dilation=20000", "--repeat", "2", "--no-figures")
import pathlib
first, second, third = map(str, sorted(pathlib.Path("results/tiny").rglob("2*-[0-9]")))
call("report", first)
call("compare", first, second)
"""

EMULATING = (
    ("run", "tiny.yaml"),
    ("run", "tiny.yaml", "--force", "--set", "topology.dilation=20000"),
    ("shell", "clos-tiny"),
    ("write-bw", "clos-tiny"),
    ("doctor",),
    ("doctor", "--ci"),
    ("fault", "heal", "x", "all"),
    ("figures", "9a"),
)
SAID = "-- said by a command --\n"


@pytest.fixture(autouse=True)
def scenario(tmp_path: Path) -> None:
    """A file with a scenario."""
    (tmp_path / "tiny.yaml").write_text(SCENARIO)


@pytest.mark.simulated
@pytest.mark.parametrize("system", LACKING)
def test_simulator_reports_and_checks_need_nothing_that_only_linux_has(
    system: str, tmp_path: Path
) -> None:
    done = execute(system, WITHOUT_EMULATION, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(tmp_path.glob("results/tiny/*/report.html"))) >= 1


@pytest.mark.parametrize(("system", "name"), [("Darwin", "macOS"), ("Windows", "Windows")])
def test_what_emulates_says_that_it_needs_linux(system: str, name: str, tmp_path: Path) -> None:
    calls = [
        f"call(*{command!r}, status={ExitStatus.MACHINE_CANNOT:d}); sys.stderr.write({SAID!r})"
        for command in EMULATING
    ]
    done = execute(system, "\n".join(calls), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    message = f"error: fabrics are emulated by the Linux kernel, and this is {name}\n  remedy: "
    for command, said in zip((*EMULATING, "the end"), done.stderr.split(SAID), strict=True):
        assert (message in said) is (command != "the end"), command
    assert not list(tmp_path.glob("results/*/2*"))
