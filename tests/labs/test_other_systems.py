"""From the start of a lab to its first check on a system that lacks what Linux has: an imitation.

Modules that only Linux or only UNIX has cannot be imported, and what these systems lack of other
modules is gone before anything of the testbed is loaded.
"""

import subprocess
import sys
from pathlib import Path

import pytest

LACKING = {
    "macos": (
        {"pyroute2", "mininet", "ryu", "eventlet", "spwd"},
        {
            "os": ["sched_getaffinity", "unshare", "setns", "O_PATH", "memfd_create", "pidfd_open"],
            "socket": ["AF_PACKET", "AF_NETLINK"],
            "select": ["epoll"],
        },
    ),
    "windows": (
        {
            *("pyroute2", "mininet", "ryu", "eventlet", "spwd", "crypt"),
            *("fcntl", "grp", "nis", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"),
        },
        {
            "os": [
                *("chown", "fork", "getegid", "geteuid", "getgid", "getpgid", "getuid", "killpg"),
                *("memfd_create", "mkfifo", "nice", "O_DIRECTORY", "O_PATH", "pidfd_open", "pread"),
                *("sched_getaffinity", "set_blocking", "setns", "setpriority", "setsid", "sysconf"),
                *("unshare", "waitid", "getloadavg"),
            ],
            "signal": [
                *("pthread_sigmask", "setitimer", "SIGALRM", "SIGCHLD", "SIGHUP", "SIGKILL"),
                *("SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGXCPU"),
            ],
            "socket": ["AF_UNIX", "AF_PACKET", "AF_NETLINK", "SCM_RIGHTS", "CMSG_SPACE"],
            "select": ["poll", "epoll"],
        },
    ),
}
"""For each system the modules, and the names in other modules, that it does not have."""

LINUX_ONLY = ("testbed.fabric", "testbed.controller", "testbed.endpoint", "testbed.experiment")
"""Parts of the testbed for real packets alone."""

SCRIPT = """
import sys
# Python's own modules are made for the system that they run on: they come first.
import asyncio, concurrent.futures, http.client, importlib, logging.handlers, shutil, os
import multiprocessing.connection, selectors, ssl, subprocess, tempfile, uuid

modules, names, parts = {modules!r}, {names!r}, {parts!r}

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name in modules or name.partition(".")[0] in modules:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        if name.startswith(parts):
            raise AssertionError(f"{{name}} is imported")

for name in modules:
    sys.modules.pop(name, None)
for module, gone in names.items():
    for name in gone:
        if hasattr(importlib.import_module(module), name):
            delattr(importlib.import_module(module), name)
def refuse_link(*_, **__):
    raise OSError("a required privilege is not held by the client")
if "fork" in names["os"]:
    os.symlink = refuse_link

sys.meta_path.insert(0, Refuse())
from testbed.cli import command_line

def call(*words, status=0):
    try:
        command_line()(words, prog_name="testbed")
    except SystemExit as ended:
        assert ended.code == status, (words, ended.code)

call("lab", "list")
call("lab", "start", "1")
os.chdir("01-the-map")
call("topo", "clos-4plane")
call("paths", "clos-4plane", "h0", "h5")
call("trace", "clos-4plane", "h0", "h5", "--path", "p2/t1_3")
call("lab", "check", status=1)
call("lab", "hint", "usid")
call("lab", "predict", "paths-used", "4")
call("lab", "run", "--no-figures")
call("lab", "table", "walk", "transmissions", "--rows", "2")
call("lab", "check", status=1)
call("lab", "status")
call("lab", "submit")
"""


@pytest.mark.parametrize("system", LACKING)
def test_a_lab_needs_nothing_that_only_linux_has(system: str, tmp_path: Path) -> None:
    modules, names = LACKING[system]
    script = SCRIPT.format(modules=modules, names=names, parts=LINUX_ONLY)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "01-the-map/01-the-map-alone.zip").is_file()
