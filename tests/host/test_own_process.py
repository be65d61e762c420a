"""A user's class in a process of its own: whatever it does, it harms nothing, and is told why."""

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.host import own_process
from testbed.host.own_class import SELECTOR
from testbed.host.own_code import CcPath, OwnController, OwnSelector, run_apart
from testbed.host.own_process import WORKER, OwnProcess, Patience
from testbed.model.errors import InputError, MachineError
from testbed.model.own_code import OwnCode
from testbed.mrc import EvInfo
from tests.commands import completed

pytestmark = pytest.mark.programs

EVS = (EvInfo(ev=3, plane=0, path=0, active=True), EvInfo(ev=5, plane=1, path=1, active=True))
LIMIT_S = 1
LATE = r"found no end within \d+ s of CPU or [\d.]+ s of sleep .*, expected code that finishes"
"""Of a loop, whether a signal, the hard limit or the clock ends it."""


def _code(pick: str, head: str = "") -> OwnCode:
    source = f"{head}\nclass Mine:\n    def __init__(self, evs, seed):\n        self.evs = evs\n"
    source += f"    def pick(self, now_ns, flight, avoid):\n        {pick}\n"
    return OwnCode(file="mine.py", name="Mine", source=source)


def _picked(code: OwnCode) -> int | None:
    with run_apart():
        return OwnSelector(code, EVS, 1).pick(0, 0, None)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_process, "CPU_S", LIMIT_S)
    monkeypatch.setattr(own_process, "MEMORY_BYTES", 256 << 20)


def test_it_gets_values_and_returns_values() -> None:
    assert _picked(_code("return self.evs[1].ev")) == 5
    assert _picked(_code("return None")) is None


def test_a_selector_that_never_sends_is_told_why() -> None:
    with run_apart():
        selector = OwnSelector(_code("return None"), EVS, 1)
        assert selector.pick(0, 0, None) is None
        assert selector.pick(1, 4096, None) is None  # what is in flight will wake the sender
        for now_ns in (2, 3):
            assert selector.pick(now_ns, 0, None) is None
        with pytest.raises(InputError, match="None, 3 times in a row, expected an EV"):
            selector.pick(4, 0, None)


def test_reports_arrive_in_order_before_the_next_pick() -> None:
    code = _code("return self.evs[self.n % 2].ev")
    more = "    n = 0\n    def on_loss(self, ev, *_):\n        self.n = self.n * 2 + (ev == 5)"
    with run_apart():
        selector = OwnSelector(OwnCode(file="m.py", name="Mine", source=code.source + more), EVS, 1)
        selector.on_loss(3, "late", 1)
        selector.on_loss(5, "late", 2)
        assert selector.pick(3, 0, None) == 5
        selector.on_loss(3, "late", 4)
        assert selector.pick(5, 0, None) == 3


def test_an_error_names_the_method_that_raised_it() -> None:
    code = _code("return 3")
    more = "    def on_loss(self, ev, *_):\n        raise TypeError"
    with run_apart():
        selector = OwnSelector(OwnCode(file="m.py", name="Mine", source=code.source + more), EVS, 1)
        selector.on_loss(3, "late", 1)
        with pytest.raises(InputError, match=r"Mine\.on_loss: found TypeError"):
            selector.pick(3, 0, None)


@pytest.mark.parametrize(
    ("pick", "message"),
    [
        ("return 1 // 0", r"mine\.py:6: Mine\.pick: found ZeroDivisionError"),
        ("raise SystemExit", r"mine\.py:6: Mine\.pick: found SystemExit"),
        ("import os; os._exit(3)", r"process ended \(3\)"),
        ("return 'text'", "found 'text', expected an EV"),
        (
            "return 4",
            r"mine\.py:5: Mine\.pick: found 4, expected an EV that __init__ gets \(3, 5\)",
        ),
        ("return self.evs[0]", r"found EvInfo\(ev=3.*expected an EV"),
        ("input()", r"mine\.py:6: Mine\.pick: found EOFError"),
        ("return 10 ** 5000", "more than 63 bits"),
        ("return [0] * (1 << 30)", "MemoryError"),
        ("while True: pass", rf"mine\.py:6: Mine\.pick: {LATE}"),
        (
            "import signal as s; s.signal(s.SIGXCPU, s.SIG_IGN)\n        while True: pass",
            rf"mine\.py:5: Mine\.pick: {LATE}",
        ),
        ("import os; [os.write(4, b'x' * 65536) for _ in range(32768)]", "limits of CPU time"),
        ("import os; os.write(4, b'[' * 4000 + b'\\n'); return 3", "no answer but other output"),
        ("import os; os.write(4, b'7\\n'); return 3", "no answer but other output"),
    ],
)
@pytest.mark.usefixtures("hasty")
def test_what_it_does_wrong_is_one_error(pick: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        _picked(_code(pick))


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("import nothing_like_that", r"mine\.py:1: Mine: found ModuleNotFoundError"),
        ("import polars", r"mine\.py:1: Mine: found ModuleNotFoundError: .*Python's own library"),
        ("import unittest.__main__", r"mine\.py:1: Mine: found SystemExit"),
        ("import venv.__main__", r"mine\.py:1: Mine: found "),
        (
            "x = open('/etc/passwd').read()",
            r"mine\.py:1: Mine: found (Permission|FileNotFound)Error",
        ),
        ("def f(:", r"mine\.py:1: .*SyntaxError|mine\.py: Mine: found SyntaxError"),
    ],
)
def test_an_error_at_its_head_has_its_line(head: str, message: str) -> None:
    if "open" in head and not _held("no files"):
        pytest.skip("this kernel has no Landlock")
    with pytest.raises(InputError, match=message):
        _picked(_code("return 3", head))


@pytest.mark.usefixtures("hasty")
def test_a_slow_machine_gives_it_more_time() -> None:
    """Work that is within the limit on the reference machine is within it here."""
    code = _code("while time.process_time() < 1.5: pass\n        return 3", "import time")
    with pytest.raises(InputError, match=LATE):
        _picked(code)
    with run_apart(slowness=4):
        assert OwnSelector(code, EVS, 1).pick(0, 0, None) == 3


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("pick", ["time.sleep(1000)", "while True: time.sleep(0.01)"])
def test_sleep_ends_although_it_uses_no_cpu(
    monkeypatch: pytest.MonkeyPatch, pick: str, *, told: bool
) -> None:
    """Also many short ones; and where the system does not tell who sleeps."""
    if not told:
        monkeypatch.setattr(own_process._Busy, "_read", lambda _: None)
    monkeypatch.setattr(own_process, "ASLEEP_S" if told else "PATIENCE_S", 0.5)
    with pytest.raises(InputError, match=LATE):
        _picked(_code(pick, "import time"))


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="no time of waiting for CPUs")
def test_work_and_waiting_for_a_cpu_is_no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_process, "ASLEEP_S", 0.6)
    code = _code("while time.process_time() < 1.5: pass\n        return 3", "import time")
    assert _picked(code) == 3


def test_time_in_which_the_machine_stood_still_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when other programs, or the host of a virtual machine, take the CPUs for minutes."""
    monkeypatch.setattr(own_process, "PATIENCE_S", 5.0)

    def held_up(*arguments: Any) -> Any:
        clock.ahead_s += 100
        return select.select(*arguments)

    clock = _Clock()
    monkeypatch.setattr(own_process, "time", clock)
    monkeypatch.setattr(own_process, "select", SimpleNamespace(select=held_up))
    assert _picked(_code("return 3")) == 3


class _Clock:
    """A clock of which each wait takes as long as it says."""

    ahead_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_s


def test_a_process_that_cannot_start_is_no_fault_of_the_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """So that grading gives no grade, in place of one that costs the student points."""
    worker = tmp_path / "worker.py"
    worker.write_text("raise SystemExit(1)")
    monkeypatch.setattr(own_process, "WORKER", worker)
    with pytest.raises(MachineError, match=r"before it ran any of it\n  remedy: every user"):
        _picked(_code("return 3"))


def test_once_confined_it_needs_no_files_of_python() -> None:
    """Such as those below /root, which nobody's process cannot read."""
    program = (
        "import runpy, sys\n"
        f"serve = runpy.run_path({str(WORKER)!r}, run_name='worker')['serve']\n"
        "confine = serve.__globals__['confine']\n"
        "def without_files(*limits):\n"
        "    sys.path.clear()\n"
        "    return confine(*limits)\n"
        "serve.__globals__['confine'] = without_files\n"
        "serve([])\n"
    )
    calls = json.dumps([["call", "pick", [0, 0, None], {}]])
    done = completed(
        [sys.executable, "-I", "-c", program],
        input=f"{json.dumps(_first(_code('return 1 // 0')))}\n{calls}\n",
    )
    said = done.stdout.splitlines()
    assert "ZeroDivisionError" in said[-1], done.stderr


@pytest.mark.usefixtures("hasty")
def test_print_goes_nowhere_even_if_it_is_more_than_the_memory() -> None:
    code = _code("[print('x' * (1 << 20)) for _ in range(300)]; return 3")
    assert _picked(code) == 3


def test_a_window_that_is_none_is_refused() -> None:
    path = CcPath(base_rtt_ns=1, bdp_bytes=1, mtu=1, trimming=True, seed=1)
    for window in ("-1", "float('nan')", "float('inf')", "1 << 60", "None"):
        source = f"class C:\n    def __init__(self, path):\n        self.window = {window}\n"
        with run_apart(), pytest.raises(InputError, match="a number of bytes from 0"):
            OwnController(OwnCode(file="c.py", name="C", source=source), path)


def _held(what: str) -> bool:
    """Whether something holds for the processes here."""
    restrictions: dict[str, None] = {}
    patience = Patience(1)
    code = _code("return 3")
    OwnProcess(code, SELECTOR, EVS, 1, restrictions=restrictions, patience=patience).close()
    return any(text.startswith(what) for text in restrictions)


ESCAPES = {
    "reads a file": "open('/etc/hostname').read()",
    "lists a directory": "os.listdir('/proc')",
    "writes a file": "open('/tmp/mrc-escaped', 'w').write('x')",
    "removes a file": "os.unlink({victim!r})",
    "forks": "os.fork()",
    "starts a program": "subprocess.run(['/bin/true'])",
    "signals others": "os.kill(-1, 15)",
    "looks into the parent": "os.kill(os.getppid(), 0) if os.getppid() else 1 / 0",
    "opens a connection": "socket.create_connection(('127.0.0.1', 9))",
    "sends a packet": "socket.socket(2, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 9))",
}


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces and Landlock are Linux's")
@pytest.mark.parametrize("escape", ESCAPES)
def test_it_reaches_nothing_but_itself(escape: str, tmp_path: Path) -> None:
    if not (_held("namespaces") and _held("no files")):
        pytest.skip("this kernel lacks namespaces or Landlock: limits only, as grading says")
    victim = tmp_path / "victim"
    victim.write_text("here")
    action = ESCAPES[escape].format(victim=str(victim))
    code = _code(action, "import os, socket, subprocess")
    with pytest.raises(InputError, match="Error"):
        _picked(code)
    assert victim.read_text() == "here"
    assert not Path("/tmp/mrc-escaped").exists()  # noqa: S108 - where it would have written


@pytest.mark.skipif(sys.platform != "linux", reason="a root of its own is Linux's")
def test_it_cannot_ask_for_names_and_sizes_of_files(tmp_path: Path) -> None:
    """Such as those of a solution: Landlock forbids to open files, but not to ask for them."""
    if not _held("no directories but Python's"):
        assert _held("no root of its own")  # which the report says
        pytest.skip("this system allows no root of its own: limits only, as grading says")
    places = [str(tmp_path), "/etc/passwd", "/proc/self", str(Path(__file__).parents[2] / "labs")]
    code = _code("return sum(map(os.path.exists, PLACES)) or 3", f"import os; PLACES = {places}")
    assert _picked(code) == 3


def test_a_run_is_waited_for_only_so_long_in_all() -> None:
    """Not so long for each of its queue pairs."""
    code = _code("time.sleep(0.4); return 3", "import time")
    with run_apart():
        one, other = (OwnSelector(code, EVS, 1) for _ in range(2))
        assert one.pick(0, 0, None) == 3
        assert isinstance(one._own, OwnProcess)
        one._own._patience.wait(1000)  # as after other calls of the run
        with pytest.raises(InputError, match=LATE):
            other.pick(0, 0, None)


@pytest.mark.root
@pytest.mark.parametrize("escape", ["removes a file", "signals others", "forks"])
def test_without_root_it_reaches_nothing_either(escape: str, open_place: Path) -> None:
    """As an instructor's own user, whose files and processes are within reach otherwise."""
    user = 12345
    worker = open_place / WORKER.name
    for file in (WORKER, WORKER.with_name("own_class.py")):
        shutil.copyfile(file, open_place / file.name)
    victim = open_place / "victim"
    victim.write_text("here")
    for path in (open_place, victim):
        os.chown(path, user, user)
    action = ESCAPES[escape].format(victim=str(victim))
    with _as_user(user, worker, _code(action, "import os")) as said:
        if "namespaces" not in said[0]:
            pytest.skip("this system gives its users no namespaces")
        assert "error" in said[-1]
    assert victim.read_text() == "here"


def _first(code: OwnCode) -> dict[str, object]:
    """What a worker reads first."""
    return {
        "code": [code.name, code.file, code.source, {}],
        "interface": asdict(SELECTOR),
        "arguments": [[], 1],
        "parameters": {},
        "cpu_s": 5,
        "memory_bytes": 1 << 30,
    }


@contextmanager
def _as_user(user: int, worker: Path, code: OwnCode) -> Iterator[list[str]]:
    """The answers of a worker that another user has started, beside a process of that user."""
    become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    first = _first(code)
    calls = [["call", "pick", [0, 0, None], {}]]
    with subprocess.Popen([*become, "sleep", "60"]) as other:
        done = completed(
            [*become, sys.executable, "-I", str(worker)],
            input=f"{json.dumps(first)}\n{json.dumps(calls)}\n",
        )
        assert done.returncode == 0, done.stderr
        yield done.stdout.splitlines()
        assert other.poll() is None
        other.kill()
