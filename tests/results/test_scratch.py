"""Temporary directories that are removed whatever is killed."""

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from testbed.model.errors import MachineError
from testbed.results.whole_file import scratch
from tests.waiting import wait_until

HOLDS = """
import sys, tempfile, time
from testbed.results.whole_file import scratch
tempfile.tempdir = sys.argv[1]
with scratch("held-") as place:
    (place / "file").touch()
    print(place, flush=True)
    time.sleep(600)
"""


def test_it_ends_with_its_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with suppress(KeyError), scratch("x-") as place:
        (place / "below").mkdir()
        assert place.parent == tmp_path
        raise KeyError
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("place", ["none", "full"])
def test_a_machine_without_a_place_for_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", None if place == "none" else str(tmp_path / "gone"))
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: [str(tmp_path / "gone")])
    with pytest.raises(MachineError, match="TMPDIR=DIR"), scratch("x-"):
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT, signal.SIGTERM])
def test_it_ends_with_a_process_that_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, tmp_path], stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        assert process.stdout is not None
        place = Path(process.stdout.readline().strip())
        assert (place / "file").exists()
        process.send_signal(number)
    wait_until(lambda: not [*tmp_path.iterdir()])
