"""A subcommand is added as docs/architecture.md says: a module, and a line in `command_line()`."""

import os
import shutil
import sys
from pathlib import Path

import testbed
from tests.commands import completed

HEARTBEAT = '''\
"""`testbed heartbeat`."""

from testbed.cli.screen import stdout


def heartbeat() -> None:
    """Say that the testbed is there."""
    stdout().print("thump")
'''


def test_a_subcommand_is_a_module_and_a_line(tmp_path: Path) -> None:
    package = tmp_path / "testbed"
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(Path(testbed.__file__).parent, package, ignore=ignored)
    (package / "cli/heartbeat.py").write_text(HEARTBEAT)
    command_line = package / "cli/__init__.py"
    text = command_line.read_text()
    before = "from testbed.cli.operating import"
    text = text.replace(before, f"from testbed.cli.heartbeat import heartbeat\n{before}")
    command_line.write_text(text.replace("(doctor, clean),", "(doctor, clean, heartbeat),"))

    def call(*arguments: str) -> str:
        command = [sys.executable, "-m", "testbed", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = completed(command, cwd=tmp_path, env=environment, check=True)
        return done.stdout

    assert "Say that the testbed is there." in call("--help")
    assert call("heartbeat") == "thump\n"
