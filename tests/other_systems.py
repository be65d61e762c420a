"""An imitation of systems that lack what Linux has, for the code that must run on them, too.

Modules that only Linux or only UNIX has cannot be imported, and what these systems lack of other
modules is gone before anything of the testbed is loaded.
"""

import sys
from pathlib import Path

from tests.commands import Completed, completed

LACKING = {
    "Darwin": (
        {"pyroute2", "mininet", "ryu", "eventlet", "spwd"},
        {
            "os": ["sched_getaffinity", "unshare", "setns", "O_PATH", "memfd_create", "pidfd_open"],
            "socket": ["AF_PACKET", "AF_NETLINK"],
            "select": ["epoll"],
        },
    ),
    "Windows": (
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

_IMITATION = """
import sys, platform
# Python's own modules are made for the system that they run on: they come first.
import asyncio, concurrent.futures, http.client, importlib, logging.handlers, shutil, os
import multiprocessing.connection, selectors, ssl, subprocess, tempfile, uuid

system, modules, names, parts = {system!r}, {modules!r}, {names!r}, {parts!r}

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
platform.system = lambda: system
if "fork" in names["os"]:
    os.symlink = refuse_link

sys.meta_path.insert(0, Refuse())
from testbed.cli import main

def call(*words, status=0):
    sys.argv = ["testbed", *words]
    try:
        main()
    except SystemExit as ended:
        assert (ended.code or 0) == status, (words, ended.code)
"""


def execute(system: str, calls: str, directory: Path, never: tuple[str, ...] = ()) -> Completed:
    """Execute Python code on an imitated system.

    Args:
        system: its name, as `platform.system` gives it.
        calls: the code; `call(*words, status=0)` calls `testbed` in it.
        directory: where it runs.
        never: what the names of modules begin with that must not be imported.
    """
    modules, names = LACKING[system]
    begin = _IMITATION.format(system=system, modules=modules, names=names, parts=never)
    return completed([sys.executable, "-c", begin + calls], cwd=directory)
