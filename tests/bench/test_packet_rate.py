"""The C program beside which a queue pair is measured."""

import shutil
import subprocess
from pathlib import Path

import pytest

from testbed.model.errors import MachineError
from testbed.studies.bench import packet_rate


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_program_to_compare_with_builds_and_says_what_it_wants(tmp_path: Path) -> None:
    program = packet_rate.build(tmp_path)
    # Without root it has no socket, with root no such argument: either way it says so and ends.
    done = subprocess.run(
        [program, "what"], input=bytes(64), capture_output=True, check=False, timeout=10
    )
    assert done.returncode in (1, 2)
    assert b"packet_rate" in done.stderr


def test_a_machine_without_a_compiler_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(MachineError, match="no C compiler"):
        packet_rate.build(tmp_path)
