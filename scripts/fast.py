"""Compile the modules that handle each packet to C with mypyc; Python prefers the result.

.venv/bin/python scripts/fast.py [OPTIMIZATION]
The C compiler takes 3 by default; with 1 it needs half the time, for tests.
Exit status 3: this machine cannot build it; the message says what is missing.
"""

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from mypyc.build import mypycify
from setuptools import setup

from testbed.fast import sources

PROJECT = Path(__file__).resolve().parents[1]
BUILD = Path(".setup/fast")
MACHINE_CANNOT = 3


def missing() -> str | None:
    """What is missing to build C for this Python, and how to install it; None if nothing is."""
    compiler = os.environ.get("CC", sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler {compiler}: apt-get install gcc"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "there is no Python.h for this Python: apt-get install python3-dev"
    return None


def build(optimization: str) -> None:
    """Build all modules into one library, so that they call each other directly in C."""
    modules = [str(path.relative_to(PROJECT)) for path in sources()]
    setup(
        name="testbed",
        packages=["testbed"],
        ext_modules=mypycify(
            modules, opt_level=optimization, group_name="testbed.fast", target_dir=str(BUILD)
        ),
        script_args=["-q", "build_ext", "-f", "-i", "-b", str(BUILD), "-t", str(BUILD)],
    )


if __name__ == "__main__":
    os.chdir(PROJECT)
    lacking = missing()
    if lacking is not None:
        print(f"fast: {lacking}. Without it the core runs as Python", file=sys.stderr)
        sys.exit(MACHINE_CANNOT)
    BUILD.mkdir(parents=True, exist_ok=True)
    build(*sys.argv[1:] or ["3"])
