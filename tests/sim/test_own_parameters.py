"""What a scenario gives a class of the user's own, what the class imports, and what it records."""

import json
import os
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import testbed
from testbed.host.own_code import OwnSelector, run_apart
from testbed.live.forks import as_files
from testbed.model.errors import InputError
from testbed.model.files.scenarios import load_recorded, load_scenario
from testbed.model.own_code import OwnCode, parameters_of
from testbed.model.scenario import Scenario
from testbed.mrc import EvInfo
from testbed.runs.job import as_recorded, identity
from testbed.sim import Simulation, simulate
from testbed.studies.study.inputs import inputs_of

BASE = "name: mine\ntopology: clos-tiny\nduration: 20 RTT\nworkload: {kind: permutation}\n"

SOURCE = """\
open("executed", "w").close()
from typing import Literal
from testbed.algorithms import Duration

class Mine:
    def __init__(self, evs, seed, *, width: int, share=0.5, pause: Duration = "2 RTT",
                 order: Literal["up", "down"] = "up", wary: bool = False, note: str | None = None):
        self.evs = [info.ev for info in evs if info.active][:width]
        self.given = width, share, pause, order, wary, note
        print("given", *self.given)

    def pick(self, now_ns, flight, avoid):
        return self.evs[0]
"""

EVS = (EvInfo(ev=3, plane=0, path=0, active=True), EvInfo(ev=5, plane=1, path=1, active=True))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SOURCE)
    return tmp_path


def _load(spray: str, **settings: Any) -> Scenario:
    Path("mine.yaml").write_text(f"{BASE}transport:\n  spray: {spray}\n")
    return load_scenario("./mine.yaml", settings=settings)


def _own(scenario: Scenario) -> OwnCode:
    return scenario.own_code["transport.spray"]


# Parameters


def test_a_class_gets_its_parameters_and_times_in_ns_of_the_run(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = _load("{class: ./mine.py:Mine, width: 3, pause: 10 us, order: down}")
    assert not (here / "executed").exists()
    Simulation(scenario)
    pause_ns = round(10_000 * scenario.topology.dilation)
    assert f"given 3 0.5 {pause_ns} down False None\n" in capsys.readouterr().out


def test_a_time_may_be_given_in_rtt_also_as_a_default(here: Path) -> None:
    assert here.is_dir()
    scenario = _load("{class: ./mine.py:Mine, width: 3}")
    rtt = scenario.topology.round_trip
    given = _own(scenario).arguments("spray", rtt, scenario.topology.dilation)
    assert given == {"width": 3, "pause": 2 * rtt.emulated_ns}
    slower = _own(scenario).arguments("spray", rtt, 3 * scenario.topology.dilation)
    assert slower["pause"] == 6 * rtt.emulated_ns


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("width: 3, widht: 4", r"mine.yaml:9: transport.spray.widht: found the parameter widht, "),
        ("width: 3, widht: 4", r"one of width, share, pause, order, wary, note\n.*mean width\?"),
        ("width: 3.5", r"found 3.5, expected a whole number, as mine.py:6 has width: int$"),
        ("width: yes", r"found yes, expected a whole number"),
        ("width: true", r"found true, expected a whole number"),
        ("width: 3, share: half", r"found half, expected a number, as mine.py:6 has share=0.5"),
        (
            "width: 3, pause: 5",
            r"found 5, expected a number with a unit(.|\n)*remedy: add the",
        ),
        ("width: 3, pause: 5 RT", r"found 5 RT, expected a number with a unit"),
        ("width: 3, order: left", r"found left, expected 'up' or 'down', as mine.py:7"),
        ("width: 3, wary: 1", r"found 1, expected true or false"),
        ("width: 3, note: 1", r"found 1, expected text or null"),
        ("share: 0.1", r"transport.spray.width: expected a value for width: int, which mine.py:6"),
    ],
)
def test_a_wrong_parameter_is_named_and_nothing_is_executed(
    here: Path, given: str, message: str
) -> None:
    written = "".join(f"\n    {part}" for part in given.split(", "))
    with pytest.raises(InputError) as caught:
        _load(f"\n    class: ./mine.py:Mine{written}")
    assert re.search(message, str(caught.value), re.MULTILINE), str(caught.value)
    assert not (here / "executed").exists()


@pytest.mark.parametrize(
    ("spray", "message"),
    [
        ("{width: 3}", "expected adaptive, blind, or a class of your own(.|\n)*beside its param"),
        ("{class: mine.py}", "transport.spray.class: found mine.py, expected a class of your own"),
        ("{class: ./none.py:Mine}", "transport.spray.class: found none.py, which does not exist"),
        ("{class: ./mine.py:Min}", "did you mean Mine"),
    ],
)
def test_a_class_with_parameters_has_to_be_one(here: Path, spray: str, message: str) -> None:
    assert here.is_dir()
    with pytest.raises(InputError, match=message):
        _load(spray)


def test_one_parameter_can_be_set_swept_and_changed(here: Path) -> None:
    assert here.is_dir()
    settings = {"transport.spray.width": 2}
    for spray in ("./mine.py:Mine", "{class: ./mine.py:Mine, width: 7}"):
        loaded = _load(spray, **settings)
        assert _own(loaded).parameters == {"width": 2}
    changed = testbed.changed(loaded, {"transport.spray.width": 4, "transport.spray.wary": True})
    assert _own(changed).parameters == {"width": 4, "wary": True}
    swept = load_scenario("./mine.yaml", settings=settings, swept={"transport.spray.width": 9})
    assert _own(swept).parameters == {"width": 9}
    with pytest.raises(InputError, match="found the parameter wight"):
        testbed.changed(loaded, {"transport.spray.wight": 4})


def test_a_run_of_other_parameters_or_other_modules_is_another_run(here: Path) -> None:
    (here / "mine.py").write_text(f"import near\n{SOURCE}")

    def identity_of(width: int, near: str) -> str:
        (here / "near.py").write_text(near)
        scenario = _load(f"{{class: ./mine.py:Mine, width: {width}}}")
        return identity("simulated", as_recorded(scenario), None)

    found = {identity_of(1, "A = 1"), identity_of(2, "A = 1"), identity_of(1, "A = 2")}
    assert len(found) == 3
    assert identity_of(1, "A = 1") in found


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("class Mine:\n    pass\n", []),
        (
            "class B:\n    def __init__(self, evs, seed, a=1): ...\nclass Mine(B): ...\n",
            ["a"],
        ),
        (
            (
                "class B:\n    def __init__(self, evs, seed, a): ...\n"
                "class Mine(B):\n    def __init__(self, evs, seed): ...\n"
            ),
            [],
        ),
        ("class Mine(Mine): ...\n", []),
        ("class Mine:\n    def __init__(self, *args, a, record, **more): ...\n", ["a"]),
        ("class Mine:\n    def __init__(self, e, s, a, /, b, *, c): ...\n", ["a", "b", "c"]),
        ("@dataclass\nclass Mine:\n    evs: list\n    seed: int\n    a: int = 1\n", ["a"]),
        ("class Mine:\n    def __init__(self, e, s, a: 'int (' = 1): ...\n", ["a"]),
        ("class Mine:\n    def __init__(self, e, s, a: 'int\\0', b={[1]: 2}): ...\n", ["a", "b"]),
        (
            (
                "@dataclass\nclass Mine:\n    k: ClassVar[int]\n    evs: list\n    seed: int\n"
                "    _: dataclasses.KW_ONLY\n    n: int = field(init=False)\n    a: int = 1\n"
            ),
            ["a"],
        ),
    ],
)
def test_parameters_are_read_from_the_source(source: str, names: list[str]) -> None:
    assert [*parameters_of(source, "Mine", 2)] == names


@pytest.mark.parametrize(
    ("imported", "base"),
    [
        ("from base import Base", "Base"),
        ("import base as beside", "beside.Base"),
        ("from other import Base", "Base"),
    ],
)
def test_parameters_may_be_those_of_a_base_in_another_file(
    here: Path, imported: str, base: str
) -> None:
    (here / "base.py").write_text(SOURCE.replace("Mine", "Base"))
    (here / "other.py").write_text("from base import Base\n")
    (here / "mine.py").write_text(f"{imported}\n\nclass Mine({base}): ...\n")
    code = _own(_load("{class: ./mine.py:Mine, width: 3}"))
    rtt = load_scenario("./mine.yaml").topology.round_trip
    assert code.arguments("spray", rtt, 1.0) == {"width": 3, "pause": 2 * rtt.real_ns}
    with pytest.raises(
        InputError, match=r"found wide, expected a .*, as base\.py:6 has width: int"
    ):
        _load("{class: ./mine.py:Mine, width: wide}")


@pytest.mark.parametrize(
    ("default", "message"),
    [
        ("PAUSE", "found pause: Duration = PAUSE, expected the time itself"),
        ("'2 RT'", "found pause: Duration = '2 RT', expected a number with a unit"),
    ],
)
def test_a_default_that_is_no_time_is_refused(here: Path, default: str, message: str) -> None:
    """Otherwise the class would get the text."""
    (here / "mine.py").write_text(SOURCE.replace('"2 RTT"', default))
    with pytest.raises(InputError, match=rf"mine\.py:6: Mine: {message}"):
        _load("{class: ./mine.py:Mine, width: 3}")
    assert _own(_load("{class: ./mine.py:Mine, width: 3, pause: 1 RTT}")).parameters["pause"]


def test_a_word_beside_a_time_stays_a_word(here: Path) -> None:
    text = SOURCE.replace('Duration = "2 RTT"', 'Duration | Literal["never"] = "never"')
    (here / "mine.py").write_text(text)
    rtt = _load("{class: ./mine.py:Mine, width: 3}").topology.round_trip
    for given, got in (("", None), (", pause: never", "never"), (", pause: 1 RTT", rtt.real_ns)):
        code = _own(_load(f"{{class: ./mine.py:Mine, width: 3{given}}}"))
        assert code.arguments("spray", rtt, 1.0).get("pause") == got


# The modules beside it


NEAR = "from further import EV\ndef first(evs):\n    return 1 // 0 if EV is None else EV\n"
IMPORTS = """\
import near
class Mine:
    def __init__(self, evs, seed): ...
    def pick(self, now_ns, flight, avoid):
        import random
        from further import EV
        return near.first(EV)
"""


def _with_modules(ev: object) -> OwnCode:
    Path("mine.py").write_text(IMPORTS)
    Path("near.py").write_text(NEAR)
    Path("further.py").write_text(f"import near, os\nEV = {ev}\n")
    Path("random.py").write_text("raise SystemExit\n")
    return _own(_load("./mine.py:Mine"))


def test_modules_of_its_folder_are_kept_and_imported(here: Path) -> None:
    code = _with_modules(5)
    assert set(code.modules) == {"near", "further"}, "never a name of Python's own library"
    for file in here.glob("*.py"):
        file.unlink()
    kept = Scenario.recorded(as_recorded(_load_kept(code)))
    for apart in (False, True):
        selector = _selector(_own(kept), apart=apart)
        assert selector.pick(0, 0, None) == 5


def _load_kept(code: OwnCode) -> Scenario:
    Path("plain.yaml").write_text(BASE)
    return testbed.changed(load_scenario("./plain.yaml"), {"transport.spray": code})


def _selector(code: OwnCode, *, apart: bool) -> OwnSelector:
    if not apart:
        return OwnSelector(code, EVS, 1)
    with run_apart():
        return OwnSelector(code, EVS, 1)


@pytest.mark.parametrize("apart", [False, True])
def test_two_classes_may_import_other_modules_of_one_name(here: Path, apart: bool) -> None:
    assert here.is_dir()
    made = [_selector(_with_modules(ev), apart=apart) for ev in (3, 5)]
    assert [selector.pick(0, 0, None) for selector in made] == [3, 5]


@pytest.mark.parametrize("apart", [False, True])
def test_a_module_may_have_the_name_of_the_class_and_import_its_file(apart: bool) -> None:
    modules = {
        "Mine": "import mine\nEV = 5\ndef first():\n    return mine.Mine.offset + EV",
        "mine": "raise RuntimeError('the file of the class, a second time')",
    }
    source = (
        "from Mine import first\nclass Mine:\n    offset = -2\n"
        "    def __init__(self, evs, seed): ...\n"
        "    def pick(self, now_ns, flight, avoid): return first()\n"
    )
    code = OwnCode(file="mine.py", name="Mine", source=source, modules=modules)
    assert _selector(code, apart=apart).pick(0, 0, None) == 3


@pytest.mark.parametrize("apart", [False, True])
def test_an_error_in_such_a_module_names_its_line(here: Path, apart: bool) -> None:
    assert here.is_dir()
    with pytest.raises(InputError) as caught:
        _selector(_with_modules(None), apart=apart).pick(0, 0, None)
    assert "mine.py:7: Mine.pick: found ZeroDivisionError" in str(caught.value)
    assert "(near.py:3)" in str(caught.value)


def test_such_modules_are_among_the_inputs_of_a_study(here: Path) -> None:
    _with_modules(5)
    (here / "study.yaml").write_text(
        "name: s\nscenarios: {a: healthy}\nmetrics: [flows.run_fraction]\n"
        "cases: {a: {transport.spray: {class: ./mine.py:Mine}}}\n"
    )
    kept = {place.name for place in inputs_of(here / "study.yaml", portable=True).contents}
    assert kept == {"study.yaml", "mine.py", "near.py", "further.py"}


def test_such_a_module_that_is_no_python_is_refused(here: Path) -> None:
    (here / "mine.py").write_text(IMPORTS)
    (here / "near.py").write_text("def :")
    with pytest.raises(InputError, match=r"near\.py:1: found no Python"):
        _load("./mine.py:Mine")


@pytest.mark.parametrize("text", ["+".join("1" * 900), "|".join(["int"] * 900)])
def test_a_declaration_that_is_too_deep_is_refused(here: Path, text: str) -> None:
    source = f"class Mine:\n    def __init__(self, evs, seed, width: {text} = {text}): ...\n"
    (here / "mine.py").write_text(source)
    with pytest.raises(InputError, match=r"mine\.py: found parameters of Mine nested too deeply"):
        _load("./mine.py:Mine")


@pytest.mark.parametrize("kind", ["pipe", "device", "large"])
def test_a_file_that_does_not_end_is_refused(here: Path, kind: str) -> None:
    if kind == "pipe" and not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    (here / "mine.py").unlink()
    if kind == "pipe":
        os.mkfifo(here / "mine.py")
    elif kind == "device":
        (here / "mine.py").symlink_to("/dev/zero")
    else:
        (here / "mine.py").write_text("#" * ((1 << 20) + 1))
    with pytest.raises(InputError, match=r"mine\.py: found (a pipe or a device|a larger file)"):
        _load("./mine.py:Mine")


def test_no_record_names_a_module_elsewhere(here: Path) -> None:
    """`testbed replay --scenario` writes modules by their names, also those of a stranger's run."""
    record = as_recorded(_load("{class: ./mine.py:Mine, width: 3}"))
    record["transport"]["spray"]["modules"] = {"../near": "A = 1"}
    with pytest.raises(ValueError, match=r"\.\./near"):
        as_files(record)
    assert here.is_dir()


# What `pick` is told, and what is recorded


BUSY = """\
class Mine:
    def __init__(self, evs, seed, record=None):
        self.evs = [info.ev for info in evs]
        self.plane = {info.ev: info.plane for info in evs}
        self.record, self.last = record, 0

    def pick(self, now_ns, flight, avoid, ports):
        ev = min(self.evs, key=lambda ev: (ports.queued[self.plane[ev]], ev))
        if now_ns == self.last and not any(ports.room):
            self.record.event("full", flight)
        self.last = now_ns
        self.record.count("picks")
        self.record.count(f"plane_{self.plane[ev]}")
        return ev
"""


@pytest.mark.simulated
def test_what_it_records_is_a_table_and_in_the_report(here: Path) -> None:
    (here / "mine.py").write_text(BUSY)
    scenario = _load("./mine.py:Mine")
    (here / "run").mkdir()
    simulate(scenario, here / "run")
    result = testbed.load_result(here / "run")
    rows, sent = result.tables["algorithm"], result.tables["transmissions"]
    totals = rows.filter(kind="count").group_by("flow", "name").agg(pl.col("value").last())
    picks = totals.filter(name="picks").sort("flow")
    per_flow = sent.group_by("flow").len().sort("flow")
    assert (picks["value"] >= per_flow["len"]).all(), "and probes of the tail"
    assert (picks["value"] <= per_flow["len"] + 2).all()
    by_plane = totals.filter(pl.col("name").str.starts_with("plane_"))["value"]
    assert by_plane.max() - by_plane.min() <= 0.02 * picks["value"].max()  # type: ignore[operator]
    assert rows["t"].is_sorted()
    assert {*rows["key"]} == {"spray"}
    page = result.report().read_text(encoding="utf-8")
    assert "Recorded by your own classes" in page
    assert '<td class="w">picks</td>' in page


@pytest.mark.simulated
def test_a_run_without_such_a_class_has_no_such_table(here: Path) -> None:
    (here / "run").mkdir()
    simulate(_load("adaptive"), here / "run")
    assert not (here / "run/algorithm.parquet").exists()
    assert testbed.load_result(here / "run").tables["algorithm"].is_empty()


@pytest.mark.parametrize("apart", [False, True])
def test_pick_is_told_which_ports_have_room_and_what_they_have_queued(
    here: Path, apart: bool
) -> None:
    """Those that it has picked itself in this round count."""
    assert here.is_dir()
    even = _selector(OwnCode(file="m.py", name="Mine", source=BUSY), apart=apart)
    assert [even.pick(now_ns, 4096, None) for now_ns in (1, 1, 1, 1, 2)] == [3, 5, 3, 5, 3]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("record.event('begun')", "found ValueError: record.event in __init__"),
        ("record.count('two words')", "the name of a record is letters, digits and _, 40 at most"),
        ("record.count('x', float('inf'))", "inf for x, which is not finite"),
        ("[record.count('x', 1e308) for _ in range(2)]", "inf for x, which is not finite"),
        ("[record.count(f'n{i}') for i in range(101)]", "n100 is one name too many: 100 at most"),
    ],
)
@pytest.mark.parametrize("apart", [False, True])
def test_what_cannot_be_recorded_is_refused(line: str, message: str, apart: bool) -> None:
    source = BUSY.replace("self.record, self.last = record, 0", line)
    with pytest.raises(InputError, match=re.escape(message)):
        _selector(OwnCode(file="m.py", name="Mine", source=source), apart=apart)


def test_a_record_of_an_earlier_version_has_neither_modules_nor_parameters(here: Path) -> None:
    record = as_recorded(_load("{class: ./mine.py:Mine, width: 3}"))
    for key in ("modules", "parameters"):
        del record["transport"]["spray"][key]
    (here / "record.json").write_text(json.dumps(record))
    assert _own(load_recorded(here / "record.json")).source == SOURCE
