"""What a wheel has beside the package: a build hook of hatchling (pyproject.toml).

- The scenarios, topologies, schemas, glossary and algorithms of the checkout, the program of the
  scenario `torch-training` with the text on which it trains, and the labs without solutions.
- The commit, also in the source distribution.
- The RDMA device's C library for the machine on which the wheel is built, if there is a C compiler.
  It needs no Python, so one wheel does for all of them.
- Ryu 4.34. It is pure Python, but only setuptools below 68 builds it, and a user's pip takes the
  newest. The environment in which hatchling runs has the older one, so Ryu is built there, from the
  archive whose hash is in uv.lock.
"""

import json
import platform
import shutil
import subprocess
import sys
import tomllib
from importlib import util
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FROM_CHECKOUT = (
    "LICENSE",
    "docs/algorithms.md",
    "docs/glossary.md",
    "docs/schema",
    "examples/train.py",
    "scenarios",
    "topologies",
)
NOT_FOR_STUDENTS = ("__pycache__", "instructor.md", "solution")
"""What a wheel does not have of a lab."""


class WheelContent(BuildHookInterface[Any]):
    """Adds files to what hatchling includes."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the files, and name them; an editable installation has them in the checkout."""
        self._made = Path(mkdtemp(prefix="testbed-wheel-"))
        if version == "editable":
            return
        root, included = Path(self.root), build_data["force_include"]
        installation = _load_installation(root)
        commit = installation.commit()
        if commit is not None and not installation.COMMIT.exists():
            recorded = self._made / "commit.json"
            recorded.write_text(json.dumps(commit), encoding="utf-8")
            included[str(recorded)] = "testbed/commit.json"
        if self.target_name == "wheel":
            for path in FROM_CHECKOUT:
                included[str(root / path)] = f"testbed/files_of_checkout/{path}"
            for part in root.glob("labs/*/*"):
                if part.name not in NOT_FOR_STUDENTS:
                    of_lab = part.relative_to(root)
                    included[str(part)] = f"testbed/files_of_checkout/{of_lab}"
            included[str(_built_ryu(root, self._made))] = "testbed/libraries"
            for file in _device_library(root, self._made).iterdir():
                place = f"testbed/device/c/ready/{platform.machine()}/{file.name}"
                included[str(file)] = place

    def finalize(self, _version: str, _build_data: dict[str, Any], _artifact: str) -> None:
        """Remove what was made."""
        shutil.rmtree(self._made)


def _load_installation(root: Path) -> Any:
    """Load testbed/installation.py alone: this environment lacks the package's dependencies."""
    return _load(root / "testbed/installation.py")


def _load(file: Path) -> Any:
    spec = util.spec_from_file_location(file.stem, file)
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _device_library(root: Path, scratch: Path) -> Path:
    """A directory with the RDMA device's library for this machine; empty without a C compiler."""
    ready = scratch / "device"
    compiling = _load(root / "testbed/device/compiling.py")
    try:
        compiling.make_ready(ready)
    except compiling.CompilingError as error:
        print(f"a wheel without the RDMA device's library: {error}")
        ready.mkdir(exist_ok=True)
    return ready


def _built_ryu(root: Path, scratch: Path) -> Path:
    """A directory with Ryu, built from its source distribution, without its tests."""
    locked = tomllib.loads((root / "uv.lock").read_text(encoding="utf-8"))["package"]
    ryu = next(package for package in locked if package["name"] == "ryu")
    required = scratch / "requirements.txt"
    required.write_text(f"ryu=={ryu['version']} --hash={ryu['sdist']['hash']}\n", encoding="utf-8")
    libraries = scratch / "libraries"
    options = ("--no-build-isolation", "--no-deps", "--require-hashes", "--no-compile")
    pip = (sys.executable, "-P", "-m", "pip", "install", "-q", *options)
    subprocess.run([*pip, "--target", libraries, "-r", required], check=True)
    for unused in ("bin", "etc", "ryu/tests"):
        shutil.rmtree(libraries / unused)
    return libraries
