"""What the bench gives to htsim, and what it makes of what comes back."""

from pathlib import Path

import pytest

from testbed.model.errors import InputError, MachineError
from testbed.model.files.matrices import read_matrix
from testbed.studies.bench import htsim
from testbed.studies.bench.cost import permutation

SCENARIO = permutation(2, 2, seed=1)


def program(directory: Path, script: str) -> Path:
    """A program of htsim's name that prints what a test needs."""
    path = directory / "datacenter" / htsim.PROGRAM
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_the_matrix_is_one_that_the_testbed_reads_too(tmp_path: Path) -> None:
    file = tmp_path / "pairs.cm"
    file.write_text(htsim.matrix_text(SCENARIO), encoding="ascii")
    hosts = [host.name for host in SCENARIO.topology.hosts]
    read = [(transfer["src"], transfer["dst"]) for transfer in read_matrix(file).transfers]
    pairs = [(src, dst) for src, dst, _ in SCENARIO.flows]
    assert read == pairs
    assert {src for src, _ in pairs} == set(hosts)


def test_the_ends_of_all_flows_are_read(tmp_path: Path) -> None:
    lines = [f"Flow Uec_{i}_0 flowId {i} uecSrc 0 finished at {200 - i}.5 total" for i in range(4)]
    script = "\n".join(["sleep 0.1", *(f"echo '{line}'" for line in lines)])  # its memory is seen
    sample = htsim.run(program(tmp_path, script), SCENARIO)
    assert sample.completions_us == [197.5, 198.5, 199.5, 200.5]
    assert sample.seconds > 0
    assert 0 < sample.megabytes < 8, "that of a shell, and not of this process"


@pytest.mark.parametrize("script", ["exit 3", "echo 'Flow a finished at 1.0 x'"])
def test_a_program_that_fails_is_no_result(tmp_path: Path, script: str) -> None:
    with pytest.raises(RuntimeError, match="of 4 flows finished"):
        htsim.run(program(tmp_path, script), SCENARIO)


@pytest.mark.parametrize("checkout", [None, Path("/nowhere")])
def test_where_it_is_absent_the_remedy_is_named(checkout: Path | None) -> None:
    with pytest.raises(InputError, match="a checkout of uet-htsim"):
        htsim.find(checkout)


def sources(directory: Path, monkeypatch: pytest.MonkeyPatch, cmake: str) -> Path:
    """A checkout in which nothing is built, and a cmake."""
    datacenter = directory / "htsim/sim/datacenter"
    datacenter.mkdir(parents=True)
    (datacenter / "CMakeLists.txt").touch()
    file = directory / "bin" / "cmake"
    file.parent.mkdir()
    file.write_text(f"#!/bin/sh\n{cmake}\n")
    file.chmod(0o755)
    monkeypatch.setenv("PATH", str(file.parent), prepend=":")
    return directory / "htsim"


def test_it_is_built_where_only_its_sources_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = 'if [ "$1" = --build ]; then cp /bin/true "$2/htsim_uec"; else mkdir "$4"; fi'
    checkout = sources(tmp_path, monkeypatch, build)
    assert htsim.find(checkout) == checkout / "sim/build/htsim_uec"


def test_a_build_that_fails_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = sources(tmp_path, monkeypatch, "echo no compiler; exit 1")
    with pytest.raises(MachineError, match=r"ended with 1:\nno compiler\n  remedy: build it"):
        htsim.find(checkout)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        MachineError, match=r"no cmake to build .*\n  remedy: apt-get install cmake"
    ):
        htsim.find(checkout)


def test_it_is_found_in_its_checkout(tmp_path: Path) -> None:
    path = program(tmp_path, "true")
    assert htsim.find(tmp_path) == path
