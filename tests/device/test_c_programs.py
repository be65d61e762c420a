"""Small programs in C, compiled here and run in a host: preloaded, loaded by path, sanitized."""

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.device import compiling, nic
from testbed.device.compiling import ALIASES, IBVERBS, PRELOAD, SOURCES
from testbed.device.library import IN_HOSTS, Library
from tests.commands import Completed, completed
from tests.device.test_device import HERE, ForbiddenNic, fabric
from tests.fabric.packets import in_node
from tests.perftest.test_programs import run_testbed
from tests.sandbox import in_sandbox

PROGRAMS = Path(__file__).with_name("c")

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc"),
    pytest.mark.skipif(
        not Path("/usr/include/infiniband/verbs.h").exists(), reason="needs libibverbs-dev"
    ),
]

SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@dataclass(frozen=True)
class Way:
    """How a program comes to the library.

    Attributes:
        options: of the compiler, before the program's source.
        libraries: after it.
        directory: where its libmrc.so is; None: the host preloads it.
    """

    options: Sequence[str] = ()
    libraries: Sequence[str] = ("-libverbs",)
    directory: Path | None = None


LINKED = Way()
BY_PATH = Way(("-DBY_PATH",), ())


def compiled(name: str, directory: Path, way: Way) -> Path:
    """Compile one of the programs, with warnings as errors."""
    program = directory / name
    source = PROGRAMS / f"{name}.c"
    options = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{SOURCES}", *way.options)
    command = ("gcc", *options, "-o", str(program), str(source), *way.libraries, "-ldl")
    subprocess.run(command, check=True)
    return program


def run(program: Path, way: Way, *arguments: str) -> Completed:
    """Run a program in a host, as its prompt does."""
    files = Library(IN_HOSTS / PRELOAD, IN_HOSTS / IBVERBS)
    environment = os.environ | files.environment(os.environ)
    if way.directory is not None:
        del environment["LD_PRELOAD"]
        environment["LD_LIBRARY_PATH"] = str(way.directory)
    with in_node(HERE):
        return completed([program, *arguments], env=environment)


def sanitized(directory: Path) -> Way:
    """With the address sanitizer in program and library, which are linked: its own comes first."""
    compiling.compile_into(directory, *SANITIZED, "-Werror")
    for name in ALIASES:
        (directory / name).symlink_to(PRELOAD)
    return Way(SANITIZED, (str(directory / PRELOAD), "-libverbs"), directory)


def linked_to_mrc(directory: Path) -> Way:
    """Linked to libmrc.so, as OCP's programs are."""
    compiling.compile_into(directory)
    return Way((), (f"-L{directory}", "-lmrc", "-libverbs"))


@pytest.mark.parametrize("way", ["linked", "by path", "sanitized"])
@in_sandbox
def test_a_program_makes_every_call(way: str, tmp_path: Path) -> None:
    """Between two queue pairs of its own, by way of a T1."""
    ways = {"linked": LINKED, "by path": BY_PATH}
    taken = ways[way] if way in ways else sanitized(tmp_path)
    program = compiled("loop", tmp_path, taken)
    with fabric():
        done = run(program, taken)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@in_sandbox
def test_the_thread_for_payload_is_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel hides the program from the NIC, and from the search for leaks."""
    monkeypatch.setattr(nic, "NicProcess", ForbiddenNic)
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")
    way = sanitized(tmp_path)
    program = compiled("loop", tmp_path, way)
    with fabric():
        done = run(program, way, "hidden")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize("name", ["mrc", "control"])
@pytest.mark.parametrize("way", ["linked", "sanitized"])
@in_sandbox
def test_a_program_of_ocps_interface_makes_every_call(way: str, name: str, tmp_path: Path) -> None:
    """Linked to libmrc.so as such programs are; a version that is too new is named."""
    taken = linked_to_mrc(tmp_path) if way == "linked" else sanitized(tmp_path)
    program = compiled(name, tmp_path, taken)
    with fabric():
        done = run(program, taken)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    too_new = "uses version 1.0.2 of mrc.h; this library has up to 1.0.1"
    assert (too_new in done.stderr) == (name == "mrc")


@pytest.mark.skipif(shutil.which("ib_write_bw") is None, reason="needs perftest")
def test_a_controller_and_the_operators_commands_see_one_state(tmp_path: Path) -> None:
    """What the one denies or disables, the other sees, and may allow or enable again."""
    orders = compiled("orders", tmp_path, linked_to_mrc(tmp_path))
    lines = (
        "h1 ib_write_bw -d mrc0 --run_infinitely > /dev/null &",
        "h0 sleep 2",
        "h0 ib_write_bw -d mrc0 --run_infinitely h1 > /dev/null &",
        "h0 sleep 3",
        f"h0 {orders} deny 0",
        f"h0 {orders} evs",
        "ev list h0-h1",
        "ev allow h0-h1 p0",
        f"h0 {orders} evs",
        "port disable h0 1",
        f"h0 {orders} ports",
        f"h0 {orders} enable 2",
        "port list h0",
        "h0 kill %1",
        "h1 kill %1",
    )
    typed = "".join(f"{line}\n" for line in lines)
    text = run_testbed("shell", "clos-tiny", "--live", "--results", str(tmp_path), typed=typed)
    denied, allowed = re.findall(r"^EV 0000000000 port 1 state (\d+)", text, re.MULTILINE)
    assert (int(denied), int(allowed) != int(denied)) == (4, True)
    first = re.findall(r"^0x00000000 .*", text, re.MULTILINE)
    assert "DENIED" in first[0]
    assert first[0].split()[-1] == "hand"
    assert "DENIED" not in first[1]
    assert "port 2 state 0" in text
    assert re.search(r"port 2 state 0\nport +state\n0 +enabled\n1 +enabled", text)


@in_sandbox
def test_what_mrc_does_not_have_is_refused_and_named_once(tmp_path: Path) -> None:
    """With the errno of each call's manual page; the program calls all of them twice."""
    program = compiled("refused", tmp_path, LINKED)
    with fabric():
        done = run(program, LINKED)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    lines = Counter(done.stderr.splitlines())
    assert set(lines.values()) == {1}, done.stderr
    lacks = [line.removeprefix("mrc0: MRC has no ") for line in lines]
    for kind in (
        "SEND;",
        "READ;",
        "atomic operations",
        "operations but WRITE",
        "unreliable connections (UC)",
        "datagrams (UD)",
        "queue pairs but those of",
        "extended reliable connections (XRC)",
        "shared receive queues (SRQ)",
        "extended queue pairs (ibv_create_qp_ex)",
        "extended completion queues (ibv_create_cq_ex)",
        "memory windows",
        "memory of its own (ibv_alloc_dm)",
        "work queues outside",
        "flow steering",
        "parent domains",
        "memory that is registered on demand",
    ):
        assert sum(line.startswith(kind) for line in lacks) == 1, (kind, done.stderr)
