"""What setup leaves of the link model, and that CI does not pass without it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.emulation.fabric.link_model import link_model
from testbed.sandbox import namespaces
from tests.commands import Completed, completed
from tests.sandbox import run_in_sandbox

ROOT = Path(__file__).parents[2]
BPF = link_model.SOURCES.relative_to(ROOT)
DEFINED = """
source <(sed '/^install_packages$/,$d' "$0")  # all that it defines, without doing it
"""
BUILD = f"""
{DEFINED}
has_header() {{ :; }}
build_link_model
"""
CLANG = {
    "fails": "#!/bin/sh\necho 'linkmodel.bpf.c:1: error' >&2\nexit 1\n",
    "works": '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho new > "$2"\n',
}


def _setup(tree: Path, clang: str) -> Completed:
    """Build the link model of a copy whose sources have changed, with a compiler of our own."""
    shutil.copytree(ROOT / "scripts", tree / "scripts")
    shutil.copytree(link_model.SOURCES, tree / BPF)
    with (tree / BPF / link_model.HEADER.name).open("a") as header:
        header.write("/* changed */\n")
    (tree / "bin").mkdir()
    (tree / "bin/clang").write_text(CLANG[clang])
    (tree / "bin/clang").chmod(0o755)
    environment = os.environ | {"PATH": f"{tree / 'bin'}:{os.environ['PATH']}"}
    command = ["bash", "-c", BUILD, str(tree / "scripts/setup.sh")]
    return completed(command, env=environment, check=True)


def _object(tree: Path) -> bytes:
    return (tree / BPF / link_model.OBJECT.name).read_bytes()


def test_a_build_that_fails_is_told_and_tried_again(tmp_path: Path) -> None:
    """The old object stays, and is refused: it is of other sources."""
    done = _setup(tmp_path, "fails")
    assert "clang could not build the link model: links have a rate" in done.stderr
    assert _object(tmp_path) == link_model.OBJECT.read_bytes()
    assert not _is_current(tmp_path)


def test_a_build_that_works_replaces_it(tmp_path: Path) -> None:
    done = _setup(tmp_path, "works")
    assert "could not" not in done.stderr
    assert _object(tmp_path) == b"new\n"
    assert _is_current(tmp_path)


def _is_current(tree: Path) -> bool:
    command = ["sha256sum", "--check", "--status", link_model.SUMS.name]
    return subprocess.run(command, cwd=tree / BPF, check=False).returncode == 0


def test_what_ships_is_built_from_the_sources_that_ship() -> None:
    """So that nobody who installs needs clang."""
    command = ["sha256sum", "--check", "--strict", link_model.SUMS.name]
    subprocess.run(command, cwd=link_model.SOURCES, check=True)


def test_an_object_of_other_sources_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _setup(tmp_path, "fails")
    monkeypatch.setattr(link_model, "SOURCES", tmp_path / BPF)
    assert "built from other sources" in str(link_model.missing())


@pytest.mark.parametrize(("listed", "status"), [("libbpf.so.1 (libc6)", 0), ("libc.so.6", 1)])
def test_libbpf_is_found_however_much_else_ldconfig_lists(
    tmp_path: Path, listed: str, status: int
) -> None:
    """More than a pipe holds, behind what is looked for."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/setup.sh", tmp_path / "scripts")
    much = f"ldconfig() {{ echo '{listed}'; printf 'libother.so (libc6)\\n%.0s' {{1..9999}}; }}"
    command = ["bash", "-c", f"{DEFINED}\n{much}\nhas_libbpf", str(tmp_path / "scripts/setup.sh")]
    assert subprocess.run(command, check=False).returncode == status


@pytest.mark.root
def test_ci_does_not_pass_without_the_link_model() -> None:
    """Where it is missing its tests are skipped, and all others are green."""

    def test_without_it(*options: str) -> tuple[int, str]:
        if link_model.OBJECT.exists():
            namespaces.mount("/dev/null", str(link_model.OBJECT), "", namespaces.MS_BIND)
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "--collect-only"]
        done = completed([*command, *options, "tests/test_layers.py"], cwd=ROOT)
        return done.returncode, done.stderr

    status, told = run_in_sandbox(lambda: test_without_it("--require-link-model"))
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "--require-link-model: the link model" in told
    assert run_in_sandbox(test_without_it)[0] == pytest.ExitCode.OK


def test_ci_asks_for_it() -> None:
    for file in (".ci/run", ".github/workflows/ci.yml"):
        assert "--require-root --require-link-model" in (ROOT / file).read_text()
