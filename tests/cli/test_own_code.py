"""Code in scenarios: people's files name it, the testbed's own records hold it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import scenario as scenario_of_python
from testbed.cli.replay import _write_scenario
from testbed.live.forks import as_files
from testbed.model.errors import InputError
from testbed.model.file_names import NOT_USABLE
from testbed.model.files.scenarios import load_recorded, load_scenario
from testbed.model.own_code import OwnCode
from testbed.model.run_files.layout import MANIFEST
from testbed.model.scenario import Scenario
from testbed.results.run_data import load_run
from tests.cli.conftest import Call

BASE = "name: mine\ntopology: clos-tiny\nduration: 2 s\nworkload: {kind: permutation}\n"
SOURCE = """
open("executed", "w").close()
class Mine:
    def __init__(self, evs, seed):
        self.evs = [info.ev for info in evs if info.active]

    def pick(self, now_ns, flight, avoid):
        return self.evs[0]
"""
HELD = f"{{file: mine.py, name: Mine, source: {json.dumps(SOURCE)}}}"

FILES = {
    "plain": f"{BASE}transport: {{spray: {HELD}}}\n",
    "congestion": f"{BASE}transport: {{congestion: {HELD}}}\n",
    "block": f"{BASE}transport:\n  spray:\n    file: mine.py\n    name: Mine\n    source: |\n"
    + "".join(f"      {line}\n" for line in SOURCE.strip().splitlines()),
    "merged": f"{BASE}transport: {{spray: {{<<: {HELD}}}}}\n",
    "merged above": f"{BASE}transport: {{<<: {{spray: {HELD}}}}}\n",
    "an alias": f"{BASE[:-1]}\nclustermapper: &code {HELD}\ntransport: {{spray: *code}}\n",
    "without source": f"{BASE}transport: {{spray: {{file: mine.py, name: Mine}}}}\n",
    "another transport": f"{BASE}transport: {{kind: roce, spray: {HELD}}}\n",
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("command", ["validate", "simulate"])
def test_a_file_that_holds_code_is_refused(call: Call, command: str, name: str) -> None:
    Path("mine.yaml").write_text(FILES[name])
    called = call(command, "./mine.yaml")
    assert called.status == 2, called.err
    assert "transport" in called.err
    assert not Path("executed").exists()


@pytest.mark.parametrize(
    "options",
    [
        (f"--set=transport.spray={HELD}",),
        (f"--set=transport={{spray: {HELD}}}",),
        ("--set=transport.spray.file=mine.py", f"--set=transport.spray.source={SOURCE!r}"),
        (f"--sweep=transport.spray={HELD},blind",),
        (f"--sweep=transport={{spray: {HELD}}}",),
    ],
)
def test_an_option_that_holds_code_is_refused(call: Call, options: tuple[str, ...]) -> None:
    Path("mine.yaml").write_text(BASE)
    called = call("simulate", "./mine.yaml", *options)
    assert called.status == 2, called.err
    assert "or a class of your own such as ./mine.py:MyClass" in called.err
    assert not Path("executed").exists()


def test_a_topology_that_holds_code_is_refused(call: Call) -> None:
    Path("mine.yaml").write_text(BASE.replace("clos-tiny", "./t.yaml"))
    shipped = (Path(__file__).parents[2] / "topologies/clos-tiny.yaml").read_text()
    Path("t.yaml").write_text(f"{shipped}transport: {{spray: {HELD}}}\n")
    called = call("validate", "./mine.yaml")
    assert called.status == 2
    assert "the unknown key transport" in called.err


def test_python_takes_code_as_an_object_only() -> None:
    content = yaml.safe_load(BASE)
    held = {"file": "mine.py", "name": "Mine", "source": SOURCE}
    with pytest.raises(InputError, match="or a class of your own"):
        scenario_of_python(content | {"transport": {"spray": held}})
    made = scenario_of_python(content | {"transport": {"spray": OwnCode(**held)}})
    assert made.own_code == {"transport.spray": OwnCode(**held)}


@pytest.fixture
def own(call: Call) -> Call:
    Path("mine.py").write_text(SOURCE)
    Path("mine.yaml").write_text(f"{BASE}transport: {{spray: mine.py:Mine}}\n")
    return call


def test_every_file_of_code_is_listed(own: Call) -> None:
    assert "executes:\n    transport.spray: mine.py:Mine" in own("validate", "./mine.yaml").out
    facts = json.loads(own("validate", "./mine.yaml", "--json").out)["facts"]
    assert facts["executes"] == {"transport.spray": "mine.py:Mine"}
    assert not Path("executed").exists()


def test_a_file_of_somebody_executes_nothing_unless_it_is_allowed(own: Call) -> None:
    """A file that came from elsewhere looks like one's own; what an option names does not."""
    Path("command.yaml").write_text(
        BASE.replace("{kind: permutation}", "{kind: program, command: [touch, executed]}")
    )
    for file, key in (("mine", "transport.spray"), ("command", "workload.command")):
        for verb in ("simulate", "run"):
            called = own(verb, f"./{file}.yaml", "--no-figures")
            assert called.status == 2
            assert f"./{file}.yaml: {key}: found" in called.err
            assert "add --allow-code" in called.err
    assert not Path("results").exists()
    assert not Path("executed").exists()


@pytest.mark.simulated
def test_a_run_and_a_series_execute_what_is_listed(own: Call) -> None:
    for series in ((), ("--repeat", "2")):
        called = own("simulate", "./mine.yaml", "--no-figures", "--allow-code", *series)
        assert called.status == 0, called.err
        assert called.err.count("./mine.yaml: executes mine.py:Mine (transport.spray)") == 1


@pytest.mark.simulated
def test_a_saved_scenario_comes_with_its_code(own: Call) -> None:
    own("simulate", "./mine.yaml", "--no-figures", "--allow-code")
    Path("mine.py").unlink()
    Path("saved").mkdir()
    (run,) = Path("results/mine").glob("2*")
    called = own("replay", str(run), "--scenario", "saved/again.yaml")
    assert called.status == 0, called.err
    assert Path("saved/mine.py").read_text() == SOURCE
    assert load_scenario("saved/again.yaml").own_code["transport.spray"].source == SOURCE
    Path("saved/mine.py").write_text("class Mine: ...")
    called = own("replay", str(run), "--scenario", "saved/other.yaml")
    assert called.status == 2
    assert "--scenario: found saved/mine.py, which differs, expected a directory" in called.err
    assert not Path("saved/other.yaml").exists()
    assert load_run(run).scenario.own_code["transport.spray"].source == SOURCE
    record = json.loads((run / MANIFEST).read_text())["scenario"]
    Path("record.json").write_text(json.dumps(record))
    assert load_recorded(Path("record.json")) == load_run(run).scenario


def test_two_files_of_one_name_are_saved_apart() -> None:
    spray = OwnCode(file="a/mine.py", name="A", source="1")
    congestion = OwnCode(file="../../b/mine.py", name="B", source="2")
    content = {"transport": {"spray": spray.model_dump(), "congestion": congestion.model_dump()}}
    text, code = as_files(content)
    assert code == {"mine.py": "1", "mine-2.py": "2"}
    assert yaml.safe_load(text)["transport"] == {"spray": "mine.py:A", "congestion": "mine-2.py:B"}


def test_a_class_is_saved_with_its_parameters_and_what_it_imports(call: Call) -> None:
    codes = {
        key: OwnCode(
            file=f"{key}/mine.py",
            name="Mine",
            source=f"import near  # {key}\n{SOURCE.replace('seed', 'seed, a=1')}",
            modules={"near": key},
            parameters={"a": 2},
        ).model_dump()
        for key in ("spray", "congestion")
    }
    text, code = as_files({"transport": codes})
    assert yaml.safe_load(text)["transport"] == {
        "spray": {"class": "mine.py:Mine", "a": 2},
        "congestion": {"class": "code-2/mine.py:Mine", "a": 2},
    }
    assert {*code} == {"mine.py", "near.py", "code-2/mine.py", "code-2/near.py"}
    _write_scenario(Path("saved.yaml"), BASE, code)
    Path("saved.yaml").write_text(f"{BASE}transport: {{spray: {{class: mine.py:Mine, a: 2}}}}\n")
    called = call("validate", "./saved.yaml")
    assert called.status == 0, called.err
    assert "transport.spray: mine.py:Mine, near.py" in called.out
    assert Path("code-2/near.py").read_text() == "congestion"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"name": "x"}', "\xff"])
def test_a_record_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text, encoding="latin-1")
    with pytest.raises(InputError):
        load_recorded(tmp_path / "x.json")


def test_no_model_takes_source_from_a_mapping() -> None:
    """Whatever reads a file: the one way is `Scenario.recorded`."""
    record = json.loads(scenario_of_python(yaml.safe_load(BASE)).model_dump_json(by_alias=True))
    record["transport"]["spray"] = {"file": "mine.py", "name": "Mine", "source": SOURCE}
    with pytest.raises(ValueError, match="or a class of your own"):
        Scenario.model_validate(record)
    with pytest.raises(ValueError, match="or a class of your own"):
        Scenario.model_validate_json(json.dumps(record))
    assert Scenario.recorded(record).own_code["transport.spray"].source == SOURCE


@pytest.mark.parametrize("number", NOT_USABLE)
@pytest.mark.parametrize(
    "keys",
    [
        "transport: {spray: below/mine.py:Mine}\n",
        "workload: {kind: connections, matrix: below/mine.cm}\n",
        "topology: below/mine.yaml\n",
    ],
)
def test_a_file_at_a_path_that_cannot_be_used_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, keys: str
) -> None:
    """Its name is too long, or it lies where one may not look; root may look everywhere."""
    file = tmp_path / "x.yaml"
    kept = (line for line in BASE.splitlines() if line.partition(":")[0] not in keys)
    file.write_text("\n".join([*kept, keys]), encoding="utf-8")
    stat = os.stat

    def refused(path: str | Path, *more: Any, **options: Any) -> os.stat_result:
        if "below" in str(path):
            raise OSError(number, os.strerror(number), str(path))
        return stat(path, *more, **options)

    monkeypatch.setattr(os, "stat", refused)
    with pytest.raises(InputError, match="which does not exist"):
        load_scenario(str(file))
