"""`testbed shell`, typed at and piped into."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.cli import fault, operating
from testbed.cli.shell import run_command
from testbed.emulation.fabric.interfaces import TUN_DEVICE
from testbed.model.files.topologies import load_topology
from testbed.sandbox import namespaces
from tests.commands import completed
from tests.judging import skip_without
from tests.pcapng import read_capture
from tests.sandbox import in_sandbox

from .conftest import Call

COMMAND = [sys.executable, "-c", "from testbed.cli import main; main()", "shell", "clos-tiny"]
PROMPT = b"mininet> "


class Typist:
    """Somebody at a terminal of their own, who runs a command in it."""

    def __init__(self, *command: str) -> None:
        self.pid, self.terminal = pty.fork()
        if not self.pid:
            os.execv(command[0], command)  # noqa: S606 - the test's own command
        self.seen = b""

    def until(self, *expected: bytes, timeout_s: float = 20) -> bytes:
        """Read until all of this has been printed, in this order; return what was."""
        deadline = time.monotonic() + timeout_s
        pattern = re.compile(b".*?".join(map(re.escape, expected)), re.DOTALL)
        while (found := pattern.search(self.seen)) is None:
            ready, _, _ = select.select(
                [self.terminal], [], [], max(deadline - time.monotonic(), 0)
            )
            assert ready, f"waited for {expected!r}, saw {self.seen!r}"
            try:
                data = os.read(self.terminal, 4096)
            except OSError:
                data = b""
            assert data, f"it ended; waited for {expected!r}, saw {self.seen!r}"
            self.seen += data
        seen, self.seen = self.seen[: found.end()], self.seen[found.end() :]
        return seen

    def type(self, text: bytes) -> None:
        os.write(self.terminal, text)

    def interrupt(self) -> None:
        """Type Ctrl-C at the prompt until it is heard.

        Python hears of one that comes between readline's prompt and its wait for a key with the
        next key only.
        """
        heard: list[int] = []
        while not heard:
            self.type(b"\x03")
            heard, _, _ = select.select([self.terminal], [], [], 2)
        self.until(b"Interrupt", PROMPT)

    def ends(self, timeout_s: float = 20) -> int:
        """Read until it has ended; return its exit status."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            ready, _, _ = select.select([self.terminal], [], [], 0.1)
            if ready:
                try:
                    self.seen += os.read(self.terminal, 4096)
                except OSError:
                    break
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


@pytest.mark.root
def test_ctrl_c_stops_the_command_and_not_the_fabric_and_ctrl_d_ends_it() -> None:
    """As at Mininet's prompt; twice at the prompt itself as well."""
    user = Typist(*COMMAND)
    user.until(PROMPT)
    user.type(b"h0 sleep 1000\n")
    time.sleep(0.5)
    user.type(b"\x03")
    user.until(PROMPT)
    user.interrupt()
    user.interrupt()
    user.type(b"h0 ip -6 route get fd4d:5243:1::11\n")
    seen = user.until(b"dev usid", PROMPT)
    assert b"encap.red segs 1 [ 5f00:0:1200:" in seen
    user.type(b"h1 tty; echo size $(stty size < /dev/tty)\n")
    user.until(b"/dev/pts/", b"size", PROMPT)
    user.type(b"\x04")
    assert user.ends() == 0


@pytest.mark.root
def test_the_terminal_is_as_before_and_a_signal_ends_the_fabric() -> None:
    """A caller's shell gets its terminal back in the mode in which it gave it."""
    script = (
        "before=$(stty -g); " + " ".join(f"'{word}'" for word in COMMAND) + "; status=$?; "
        '[ "$before" = "$(stty -g)" ] && echo the same, $status'
    )
    user = Typist("/bin/bash", "-c", script)
    user.until(PROMPT)
    (child,) = (
        int(word) for word in Path(f"/proc/{user.pid}/task/{user.pid}/children").read_text().split()
    )
    os.kill(child, signal.SIGTERM)
    user.until(b"the same, 143")
    assert user.ends() == 0


@pytest.mark.root
@skip_without("ping", "iputils-ping")
def test_commands_may_be_piped_in_and_links_captured(tmp_path: Path) -> None:
    """Each line is a command, none is eaten by the command before it."""
    link = "p1_t0_0--p1_t1_0"
    called = completed(
        [*COMMAND, "--pcap", link, "--directory", str(tmp_path)],
        input="h0 ping -c1 -W1 h1\npath h0 h1 p1/t1_0\nh0 ping -c2 -i0.2 fd4d:5243:1::11\n"
        "path h0 h1\npath h0 h1 p1/t1_7\npingall\nnet\nexit\nh0 echo too late\n",
    )
    assert called.returncode == 2  # there is no path p1/t1_7
    assert "1 packets transmitted, 1 received" in called.stdout
    took = re.findall(r"rtt min/avg/max/mdev = ([\d.]+)/", called.stdout)
    assert float(took[0]) > load_topology("clos-tiny").propagation_rtt_ns / 1e6
    assert "2 packets transmitted, 2 received" in called.stdout
    assert "p1/t1_0" in called.stdout
    assert "no path p1/t1_7: one of p0/t1_0 p1/t1_0 p0/t1_1 p1/t1_1" in called.stdout
    assert "0% dropped (2/2 received)" in called.stdout
    assert "h0 h0-p0:p0_t0_0-d0 h0-p1:p1_t0_0-d0" in called.stdout
    assert "too late" not in called.stdout
    assert called.stderr == f"{link}: {tmp_path / link}.pcapng\n"
    data = (tmp_path / f"{link}.pcapng").read_bytes()
    assert "realtime_offset_ns = " in read_capture(data).comment
    assert data.count(bytes.fromhex("5f00 0000 2200 1201 3200 f006")) >= 2  # on the way to T1 0


@pytest.mark.root
@skip_without("iperf3")
def test_iperf3_measures_twice_what_a_port_carries_at_most() -> None:
    """Each measurement has a server of its own, which is gone afterwards."""
    called = completed(
        COMMAND, input="iperf3 h0 h1 -t 2 -J\niperf3 h1 h0 -t 2\niperf3 h0\nh1 ss -Hltn\n"
    )
    document, rest = called.stdout.split("\n}\n", 1)
    received = json.loads(document + "\n}")["end"]["sum_received"]
    assert received["bytes"] > 0
    assert received["bits_per_second"] < 1.05 * load_topology("clos-tiny").port_rate_bps
    assert "iperf Done." in rest
    assert rest.endswith("\nusage: iperf3 SRC DST [OPTION...], such as: iperf3 h0 h4 -t 5 -P 4\n")


@pytest.mark.root
def test_what_mininet_knows_and_this_fabric_has_not_is_told_and_ends_nothing(
    tmp_path: Path,
) -> None:
    """Mininet's own commands would hang (iperf), raise (dpctl), or do nothing (switch)."""
    (tmp_path / "commands").write_text("# of a file\nh0 echo from a file\nnodes\n")
    called = completed(
        COMMAND,
        input="ev list h0-h1\nport list h0\nfault inject cut h0-p0:p0_t0_9\n"
        "iperf h0 h1\ndpctl dump-flows\nswitch p0_t0_0 stop\nmptcp\nsource nowhere\n"
        f"source {tmp_path}/commands\nhelp\nh0 echo still here\n",
    )
    assert called.returncode == 3  # of `ev`, which needs a watched prompt
    assert called.stdout.count("not in this fabric; ") == 3
    assert called.stdout.count("ev and port need a prompt that watches queue pairs") == 2
    assert "remedy: testbed shell --live watches" in called.stdout
    assert "usage: mptcp HOST" in called.stdout
    assert "cannot read nowhere: [Errno 2]" in called.stdout
    assert "unknown command" not in called.stdout
    assert "from a file\navailable nodes are" in called.stdout
    assert "iperf3" in called.stdout
    assert "dpctl" not in called.stdout
    assert called.stdout.endswith("still here\n")
    assert "error: fault.target: found h0-p0:p0_t0_9" in called.stderr


ANSWERED = [
    ("h0 true\nsh true\npy h0\npx pass\nh0 sleep 60 &\nh0 sh -c 'exit 0' # all is well\n\n", 0, ""),
    ("h0 true\nh0 sh -c 'exit 7'\nfrob\nh0 echo still here", 7, "still here"),
    ("h0 sh -c 'kill -9 $$'\nh0 kill -9 $$\nh0 echo a new shell", 137, "a new shell"),
    ("h0 exit 5\nh0 printf '\\377\\n'\nh0 echo a new shell", 5, "a new shell"),
    ("frob", 2, "unknown command: frob; help lists the commands"),
    ("help\nhelp link\nhelp frob", 2, "unknown command: frob; help lists the commands"),
    ("h4 ping h0", 2, "no host h4 in clos-tiny: hosts are h0 to h1"),
    ("p0_t0_7 ip route", 2, "no switch p0_t0_7 in clos-tiny: switches are p0_t0_0 to p1_t1_1"),
    ("path h0 h9\nmptcp h0 p0_t0_0", 2, "no host p0_t0_0 in clos-tiny"),
    ("x\niperf3 h9 h0", 2, "no host h9 in clos-tiny"),
    ("sh exit 3\nh0\nlink h0 h1 down", 3, "no link between h0 and h1"),
    (
        "py 1/0\npx raise SystemExit(4)\nsource nowhere",
        1,
        "division by zero\n4\ncannot read nowhere",
    ),
    ("# a remark\n  # h9 ping h0\npath h0 h1 # the first\nh0 echo 'no # remark'", 0, "no # remark"),
    ("fault inject cut nowhere\nh0 false", 2, ""),
    ("fault inject cut h0\npingall\nfault --nonsense", 1, "100% dropped"),
]
"""Lines that are piped in, the exit status, and what is said on standard output."""


@pytest.mark.root
@pytest.mark.parametrize(("lines", "status", "said"), ANSWERED)
def test_the_status_of_what_is_piped_in_is_that_of_the_first_failure(
    lines: str, status: int, said: str
) -> None:
    """A script or CI learns of it; the commands behind it are carried out all the same."""
    called = completed(COMMAND, input=f"{lines}\n")
    assert called.returncode == status, called.stdout + called.stderr
    assert said in called.stdout


@pytest.mark.root
def test_lines_that_are_no_text_are_unknown_commands() -> None:
    called = subprocess.run(
        COMMAND, input=b"\xff\xfe\nh0 echo after it\n", capture_output=True, check=False
    )
    assert called.returncode == 2
    assert b"after it" in called.stdout


FABRICLESS = """
from mininet.log import lg
from testbed.emulation.fabric.prompt import FabricShell
lg.setLogLevel("warning")
raise SystemExit(FabricShell({}, None, None, {}).status)
"""


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("source again", "again is being read already"),
        ("sh true\0", "a command with a NUL byte"),
        ("source no\0where", "a command with a NUL byte"),
    ],
)
def test_a_prompt_goes_on_after_what_it_cannot_read(lines: str, said: str, tmp_path: Path) -> None:
    """Of a prompt without a fabric, which no root is needed for."""
    (tmp_path / "again").write_text("sh echo first\nsource other\n", encoding="utf-8")
    (tmp_path / "other").write_text("source ./again\nsource quiet\nsource quiet", encoding="utf-8")
    (tmp_path / "quiet").touch()
    called = completed(
        [sys.executable, "-c", FABRICLESS], input=f"{lines}\nsh echo after it\n", cwd=tmp_path
    )
    assert called.returncode == 2, called.stderr
    assert said in called.stderr + called.stdout
    assert called.stdout.count("already") <= 1
    assert called.stdout.endswith("after it\n")


@pytest.mark.root
def test_a_signal_sent_again_and_again_ends_the_fabric_without_a_traceback() -> None:
    """`timeout` sends one to the process and one to its group; who is impatient does as well."""
    with subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as called:
        assert called.stdin is not None
        assert called.stdout is not None
        assert called.stderr is not None
        called.stdin.write(b"h0 echo up\n")
        called.stdin.flush()
        assert called.stdout.readline().strip() == b"up"
        called.terminate()
        time.sleep(0.005)
        called.terminate()
        assert called.stderr.read() == b""
    assert called.returncode in (128 + signal.SIGTERM, -signal.SIGTERM)


@pytest.mark.root
@in_sandbox
def test_without_tun_devices_the_prompt_says_that_there_is_no_delay() -> None:
    """And ordinary traffic arrives all the same."""
    namespaces.mount("/dev/null", TUN_DEVICE, "", namespaces.MS_BIND)
    called = completed(COMMAND, input="h0 ping -c1 -W1 h1\n", check=True)
    assert "1 packets transmitted, 1 received" in called.stdout
    assert "ordinary traffic has no propagation delay here" in called.stderr
    assert "modprobe tun" in called.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--pcap", "h0--p9_t0_0"), "--pcap: found h0--p9_t0_0, expected a link of clos-tiny"),
        (
            ("--pcap", "h0--p0_t0_0", "--directory", "nowhere"),
            "--directory: found nowhere, expected a directory",
        ),
    ],
)
def test_what_cannot_be_captured_is_told_at_once(
    call: Call, arguments: tuple[str, ...], message: str
) -> None:
    called = call("shell", "clos-tiny", *arguments)
    assert called.status == 2
    assert message in called.err


def test_a_wrong_option_at_a_watched_prompt_is_an_error_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The prompt goes on: it must not end with what ends a command."""
    assert run_command(fault.commands, "fault", tmp_path, "inject --nonsense") == 2
    printed = capsys.readouterr().err
    assert "error: No such option: --nonsense" in printed


def test_an_unclosed_quote_at_a_prompt_is_an_error_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(operating.ev_commands, "ev", tmp_path, "list 'h0->h4") == 2
    printed = capsys.readouterr().err
    assert "error: the line: found list 'h0->h4, expected a line in which every quote is" in printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--script", "empty.txt"), "--script: found empty.txt, which has none, expected a file"),
        (
            ("--script", "one.txt", "--limit", "soon"),
            "--limit: found soon, expected a number with a unit",
        ),
        (("--script", "one.txt", "--limit", "1 us"), "--limit: found 1 us, expected a round trip"),
        (("--limit", "3 s"), "--limit: found no --script, expected --script FILE"),
        (("--json",), "--json: found no --script"),
    ],
)
def test_a_script_without_commands_or_options_without_it_are_refused(
    call: Call, options: tuple[str, ...], message: str
) -> None:
    Path("empty.txt").write_text("# nothing\n\n")
    Path("one.txt").write_text("h0 true\n")
    refused = call("shell", "clos-tiny", *options)
    assert refused.status == 2
    assert message in refused.err
    assert not Path("results").exists()
