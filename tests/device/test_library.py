"""The library that programs load: ready or compiled, with and without symbol versions."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed.device import compiling, library
from testbed.device.compiling import IBVERBS, PRELOAD, CompilingError
from testbed.model.errors import MachineError
from tests.commands import completed

REAL = Path("/usr/lib/x86_64-linux-gnu/libibverbs.so.1")
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


def symbols(file: Path) -> dict[str, str]:
    """The functions that a library exports, with their versions."""
    done = completed(["nm", "-D", "--defined-only", str(file)], check=True)
    names = [line.split() for line in done.stdout.splitlines()]
    found = [name.partition("@@") for _, kind, name in names if kind == "T" and "@IBV" not in name]
    found += [name.partition("@@") for _, kind, name in names if kind == "T" and "@@" in name]
    return {name: version for name, _, version in found}


@needs_compiler
def test_it_compiles_without_a_warning_and_once(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    compiling.compile_into(tmp_path, "-Werror")
    compiling.make_ready(ready)
    assert compiling.is_ready(ready)
    before = (ready / PRELOAD).stat().st_mtime_ns
    compiling.make_ready(ready)
    assert (ready / PRELOAD).stat().st_mtime_ns == before


@needs_compiler
@pytest.mark.skipif(not REAL.exists(), reason="needs libibverbs")
def test_its_functions_have_the_real_librarys_versions(tmp_path: Path) -> None:
    """`dlvsym` asks for them; a preloaded library has none, and so stands for all versions."""
    compiling.compile_into(tmp_path)
    versioned, preload, real = (
        symbols(tmp_path / IBVERBS),
        symbols(tmp_path / PRELOAD),
        symbols(REAL),
    )
    # Of the C library, whatever a program is linked to: names.c, mptcp.c.
    others = {"bind", "getaddrinfo", "gethostbyname", "socket", "setsockopt"}
    assert {name for name in preload if not name.startswith("mrc")} - others == set(versioned)
    assert others <= preload.keys()
    assert not any(preload.values())
    assert {name: real[name] for name in versioned} == versioned


@needs_compiler
@pytest.mark.skipif(not REAL.exists(), reason="needs libibverbs")
def test_every_function_of_the_real_library_that_takes_our_objects_is_there(tmp_path: Path) -> None:
    """The rest take none of ours: numbers and words, or objects that ours never hands out."""
    compiling.compile_into(tmp_path)
    missing = {
        name
        for name in symbols(REAL).keys() - symbols(tmp_path / PRELOAD).keys()
        if name.startswith(("ibv_", "_ibv_"))
    }
    harmless = {
        "ibv_copy_ah_attr_from_kern",
        "ibv_copy_path_rec_from_kern",
        "ibv_copy_path_rec_to_kern",
        "ibv_copy_qp_attr_from_kern",
        "ibv_destroy_ah",
        "ibv_destroy_srq",
        "ibv_dofork_range",
        "ibv_dontfork_range",
        "ibv_get_sysfs_path",
        "ibv_import_device",
        "ibv_is_fork_initialized",
        "ibv_modify_srq",
        "ibv_query_srq",
        "ibv_rate_to_mbps",
        "ibv_rate_to_mult",
        "ibv_read_sysfs_file",
        "ibv_unimport_dm",
        "ibv_unimport_mr",
        "ibv_unimport_pd",
    }
    private = {name for name in missing if "PRIVATE" in symbols(REAL)[name]}
    assert missing - private <= harmless


def test_without_a_compiler_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(CompilingError, match="no C compiler"):
        compiling.make_ready(tmp_path / "ready")
    monkeypatch.setattr(library, "is_ready", lambda: False)
    with pytest.raises(MachineError, match="apt install gcc"):
        library.put_into(tmp_path)


@pytest.mark.parametrize(("name", "why"), [("a b", "a space"), ("a:b", "a colon"), ("a", "noexec")])
def test_a_place_from_which_nothing_is_loaded_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, why: str
) -> None:
    """Programs would only find no device, and the loader warns of a file that nobody knows."""
    flags = os.ST_NOEXEC if why == "noexec" else 0
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=flags))
    with pytest.raises(MachineError, match=f"(?s){why}.*TMPDIR"):
        library.put_into(tmp_path / name)
