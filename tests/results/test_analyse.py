"""From a run's records to what the user opens: figures, report, summary."""

import base64
import json
import re
import xml.etree.ElementTree as ET
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest
from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure

from testbed.model.errors import InputError
from testbed.model.scenario import Expect
from testbed.model.summary import Expectation, Summary
from testbed.model.units import show_rate, show_size
from testbed.results.analyse import analyse
from testbed.results.report.figures import style
from testbed.results.report.html import number
from testbed.results.report.run_report import proof_lines, render, show_moment
from testbed.results.run_data import load_run
from testbed.results.run_directory import RunDirectory

from .synthetic import Failure, Plan, generate

SVG = "{http://www.w3.org/2000/svg}"
ONE_WAY = (("h0", "h4"),)


class Page(HTMLParser):
    """Collects what a browser would load, and the text that a reader sees."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note links to other files."""
        self.tags.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        """Gather the text."""
        self.text += data


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Summary]:
    directory = tmp_path_factory.mktemp("results") / "link-failure" / "20260101T120000-1"
    generate(directory, Plan())
    return directory, analyse(directory, svg=True)


def test_it_writes_all_that_the_user_looks_at(analysed: tuple[Path, Summary]) -> None:
    directory, summary = analysed
    assert RunDirectory(directory).finished
    assert {path.name for path in (directory / "figures").iterdir()} == {
        f"{stem}.{kind}"
        for stem in ("goodput", "failover_fault0", "ev_states_flow0", "ev_states_flow1")
        for kind in ("png", "svg")
    }
    written = json.loads((directory / "summary.json").read_text())
    assert written == summary.model_dump(mode="json")
    assert Summary.model_validate(written) == summary


def test_long_tables_of_the_report_say_where_all_rows_are(
    analysed: tuple[Path, Summary], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, summary = analysed
    data = load_run(directory)
    assert "has them all" not in render(data, summary, ())
    monkeypatch.setattr("testbed.results.report.run_report.MAX_FLOWS", 1)
    monkeypatch.setattr("testbed.results.report.run_report.MAX_EVS", 3)
    text = Page(render(data, summary, ())).text
    slowest = min(summary.flows, key=lambda flow: flow.ideal_fraction or 0.0)
    used = sum(len(flow.evs) for flow in summary.flows)
    assert "1 of 2 flows, the slowest first; summary.json has them all." in text
    assert "1 of 2 flows, those that the fault affected first; summary.json has them all." in text
    assert f"3 of {used} EVs, of the flows above; summary.json has them all." in text
    assert f"{slowest.src} → {slowest.dst}" in text


def test_the_report_loads_nothing(analysed: tuple[Path, Summary]) -> None:
    html = (analysed[0] / "report.html").read_text()
    page = Page(html)
    assert len(page.sources) == 4
    assert all(source.startswith("data:image/svg+xml;base64,") for source in page.sources)
    assert not {"script", "link", "iframe"} & set(page.tags)
    assert "@import" not in html
    assert "url(" not in html


def test_the_report_tells_the_run(analysed: tuple[Path, Summary]) -> None:
    text = " ".join(Page((analysed[0] / "report.html").read_text()).text.split())
    for words in (
        "trusted",
        "4.000 s",
        "p0_t0_0--p0_t1_1",
        "Detection, first EV",
        "183 ms",
        "18.3 us",
        "h0 → h4",
        "priority drop installed, barrier reply",
        "its probes were answered",
        "intact",
    ):
        assert words in text, words


def test_the_report_shows_expectations_of_every_scope(
    analysed: tuple[Path, Summary],
) -> None:
    directory, summary = analysed
    missed = tuple(
        Expectation(
            scope=scope,
            figure=f"figure_of_{scope}",
            bound="at most 1",
            where="" if scope == "faults" else "there",
            value=None,
            holds=False,
        )
        for scope in Expect.model_fields
    )
    shown = summary.model_copy(update={"expectations": missed})
    text = Page(render(load_run(directory), shown, ())).text
    for scope in Expect.model_fields:
        assert f"figure_of_{scope} of" in text
    assert "not measured: no flow had an active EV through a fault" in text


def test_figures_keep_their_text_and_show_the_run(analysed: tuple[Path, Summary]) -> None:
    figures = analysed[0] / "figures"
    expected = {
        "goodput": ["h0 → h4", "goodput (Mbit/s)", "ideal split allows", "plane 3", "first EV out"],
        "failover_fault0": ["sent and lost", "delivered in order", "base RTTs from the fault"],
        "ev_states_flow0": ["ASSUMED_BAD", "▶ p0/t1_1", "p3/t1_3", "healed"],
    }
    for stem, words in expected.items():
        root = ET.parse(figures / f"{stem}.svg").getroot()  # noqa: S314 - our own file
        text = "\n".join("".join(node.itertext()) for node in root.iter(f"{SVG}text"))
        for word in words:
            assert word in text, (stem, word)


def test_measuring_gives_the_same_summary_and_draws_nothing(
    analysed: tuple[Path, Summary], tmp_path: Path
) -> None:
    directory, summary = analysed
    run = tmp_path / directory.parent.name / directory.name
    generate(run, Plan())
    assert analyse(run, drawn=False) == summary
    assert RunDirectory(run).finished
    assert (run / "junit.xml").is_file()
    assert not (run / "report.html").exists()
    assert not [*(run / "figures").glob("*")]


def test_analysing_again_gives_the_same_files(analysed: tuple[Path, Summary]) -> None:
    directory, summary = analysed
    before = {path: path.read_bytes() for path in (directory / "figures").glob("*.svg")}
    report = (directory / "report.html").read_bytes()
    assert analyse(directory) == summary
    assert {path: path.read_bytes() for path in before} == before
    assert (directory / "report.html").read_bytes() == report


def test_what_a_run_recorded_is_escaped(tmp_path: Path) -> None:
    run = tmp_path / "run"
    generate(run, Plan(duration=5.0))
    path = run / "manifest.json"
    manifest = json.loads(path.read_text())
    evil = "</pre><script>alert(1)</script>"
    manifest["scenario"]["description"] = manifest["kernel"] = evil
    path.write_text(json.dumps(manifest))
    faults = run / "faults.jsonl"
    faults.write_text(json.dumps({**json.loads(faults.read_text()), "proof": {evil: evil}}))
    html = render(load_run(run), analyse(run, drawn=False), ())
    assert "<script" not in html
    assert "alert(1)" in html


@pytest.mark.parametrize(
    "plan",
    [
        Plan(failures=(), duration=3.0, pairs=ONE_WAY),
        Plan(failures=(Failure(until=None, detect=None),), duration=5.0, pairs=ONE_WAY),
        Plan(failures=(Failure(effective=False),), duration=5.0, pairs=ONE_WAY),
        Plan(
            failures=(Failure(at=2.0, until=2.6), Failure("h0--p1_t0_0", 2.3, 4.0)),
            duration=5.0,
            pairs=ONE_WAY,
        ),
        Plan(stops_at=4.1, pairs=ONE_WAY),
        Plan(failures=(Failure("h1--p1_t0_0", detect=None),), duration=5.0, pairs=ONE_WAY),
    ],
    ids=["no fault", "never noticed", "no effect", "overlapping", "ends early", "beside the flow"],
)
def test_every_kind_of_run_gets_its_report(tmp_path: Path, plan: Plan) -> None:
    generate(tmp_path / "run", plan)
    summary = analyse(tmp_path / "run")
    page = Page((tmp_path / "run" / "report.html").read_text())
    assert summary.verdict in page.text
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert {path.suffix for path in (tmp_path / "run" / "figures").iterdir()} == {".png"}
    drawn = len(list((tmp_path / "run" / "figures").glob("failover_*")))
    assert drawn == sum(fault.flows_affected > 0 for fault in summary.faults)
    noticed = any(flow.evs_detected for fault in summary.faults for flow in fault.flows)
    assert ("left the active set and send no more" in page.text) == noticed
    assert "nan" not in re.findall(r"\bnan\b", page.text.lower())


def test_a_fault_after_the_last_arrival_is_said_not_to_be_measured(tmp_path: Path) -> None:
    early, late = Failure("h0--p1_t0_0", 2.0, 2.6), Failure(at=4.0, until=None, detect=None)
    plan = Plan(failures=(early, late), duration=5.0, stops_at=3.0, pairs=ONE_WAY)
    generate(tmp_path / "run", plan)
    summary = analyse(tmp_path / "run")
    assert [bool(fault.flows) for fault in summary.faults] == [True, False]
    text = " ".join(Page((tmp_path / "run" / "report.html").read_text()).text.split())
    assert f"Not measured: blackhole {late.target}, as the last byte had arrived" in text
    assert "When h0--p1_t0_0 failed" in text


def test_without_any_fault_in_the_measured_time_there_is_nothing_to_zoom_in_on(
    tmp_path: Path,
) -> None:
    late = Failure(at=4.0, until=None, detect=None)
    plan = Plan(failures=(late,), duration=5.0, stops_at=3.0, pairs=ONE_WAY)
    generate(tmp_path / "run", plan)
    analyse(tmp_path / "run", svg=True)
    text = Page((tmp_path / "run" / "report.html").read_text()).text
    assert "No fault took effect in the measured time." in text
    assert "around the fault" not in (tmp_path / "run" / "figures" / "goodput.svg").read_text()


def test_figures_of_a_run_that_is_not_trusted_say_so(tmp_path: Path) -> None:
    plan = Plan(duration=3.0, failures=(), unexplained_drops=3, pairs=ONE_WAY)
    generate(tmp_path / "run", plan)
    summary = analyse(tmp_path / "run", svg=True)
    assert summary.verdict == "degraded"
    for path in (tmp_path / "run" / "figures").glob("*.svg"):
        assert "DEGRADED RUN: raw_socket of h0 dropped 3 packets" in path.read_text()
    html = (tmp_path / "run" / "report.html").read_text()
    inlined = re.findall(r"base64,([A-Za-z0-9+/=]+)", html)
    assert all(b"DEGRADED RUN" in base64.b64decode(svg) for svg in inlined)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("run.json", None, "a file of a run"),
        ("run.json", "{}", "t0_ns"),
        ("manifest.json", "{}", "Scenario"),
        ("manifest.json", "{", "JSON"),
        ("arrivals.parquet", None, "a table of the run"),
        ("faults.jsonl", '{"index": 0}', "kind"),
    ],
)
def test_a_damaged_run_is_named(tmp_path: Path, name: str, content: str | None, words: str) -> None:
    generate(tmp_path / "run", Plan(duration=1.0, failures=()))
    if content is None:
        (tmp_path / "run" / name).unlink()
    else:
        (tmp_path / "run" / name).write_text(content)
    with pytest.raises(InputError, match=words):
        analyse(tmp_path / "run")


def test_a_table_without_a_column_is_named(tmp_path: Path) -> None:
    generate(tmp_path / "run", Plan(duration=1.0, failures=()))
    file = tmp_path / "run" / "arrivals.parquet"
    pl.read_parquet(file).drop("ev").write_parquet(file)
    with pytest.raises(InputError, match=r"(?s)found no column ev, .*make the run again"):
        analyse(tmp_path / "run")


def test_proof_as_people_read_it() -> None:
    proof = {"injected": {"barrier_ns": 7_500_000_000, "carrier": [True, False]}, "dropped": 56}
    moment = partial(show_moment, base_rtt_s=13e-6)
    proof |= {"until_end": {"dropped": [31, 2560], "read_back": {"loss_ppm": [50_000]}}}
    proof |= {"healed": {"read_back": {}, "port_status_ns": [6_000_000_000, None]}}
    assert proof_lines(
        proof | {"h0>p0_t0_0": 3}, 5_000_000_000, moment, ("h0>p0_t0_0", "p0_t0_0>h0")
    ) == [
        "when it took effect: barrier at 2.5000000 s; carrier on and off at the two ends",
        "56 packets dropped",
        (
            "until it healed: packets dropped: 31 h0>p0_t0_0, 2\u2009560 p0_t0_0>h0; "
            "the link model: loses 5%"
        ),
        "after healing: the link model: no fault; port status at 1.0000000 s",
        "h0>p0_t0_0: 3 packets dropped or corrupted",
    ]


def test_numbers_as_people_read_them() -> None:
    assert number(None) == "–"  # noqa: RUF001 - a dash stands for no value
    assert number(12345.678, 1) == "12\u2009345.7"
    assert show_rate(38.08e6) == "38.08 Mbit/s"
    assert show_rate(380.8e9) == "380.8 Gbit/s"
    assert show_size(500) == "500 B"
    assert show_size(95059968) == "90.66 MiB"


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_a_figure_is_drawn_once_and_as_matplotlib_would_save_it(
    tmp_path: Path, suffix: str
) -> None:
    drawn = []

    class Counted(Figure):
        def draw(self, renderer: RendererBase) -> None:
            drawn.append(renderer)
            super().draw(renderer)

    def figure() -> Figure:
        figure = Counted(figsize=(4, 2), layout="constrained")
        figure.subplots().plot([0, 3, 1], label="a line")
        figure.legend()
        return figure

    ours, theirs = tmp_path / f"ours.{suffix}", tmp_path / f"theirs.{suffix}"
    with style.style():
        style.write(figure(), ours, "a title")
        assert len(drawn) == 1
        metadata = {"Date": None, "Title": "a title", "Creator": "mrc-testbed"}
        figure().savefig(theirs, dpi=style.PNG_DPI, metadata=metadata if suffix == "svg" else None)
    assert ours.read_bytes() == theirs.read_bytes()


def test_queue_pairs_of_two_hosts_are_told_apart(analysed: tuple[Path, Summary]) -> None:
    directory, summary = analysed
    second = [flow.model_copy(update={"lane": 1}) for flow in summary.flows]
    (fault,) = summary.faults
    struck = tuple(flow.model_copy(update={"lane": 1}) for flow in fault.flows)
    several = summary.model_copy(
        update={
            "flows": tuple(second),
            "faults": (fault.model_copy(update={"flows": struck}),),
        }
    )
    text = " ".join(Page(render(load_run(directory), several, ())).text.split())
    assert text.count("h0 → h4 #1") == 2, "in the table of flows, and in that of the fault"
