"""Figures are drawn in the project's style, whatever the user has set."""

import ast
import os
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

import testbed
from testbed.results.report.figures.style import new_figure, rtt_axis, style, title, write
from tests.commands import completed

PACKAGE = Path(testbed.__file__).parent
LOADING = sorted(
    file.relative_to(PACKAGE.parent).with_suffix("").as_posix().replace("/", ".")
    for file in PACKAGE.rglob("*.py")
    for statement in ast.parse(file.read_text(encoding="utf-8")).body
    if isinstance(statement, ast.Import | ast.ImportFrom)
    and ast.unparse(statement).split()[1].partition(".")[0] == "matplotlib"
)
"""The modules that load Matplotlib; those of a package begin with it."""


def _drawn(file: Path) -> bytes:
    with style():
        figure = new_figure(2.0)
        axes = figure.add_subplot()
        axes.plot([0, 1], [1, 0], label="a")
        axes.set_title("a title")
        axes.legend()
        write(figure, file, "a title")
    return file.read_bytes()


@pytest.mark.parametrize("suffix", [".svg", ".png"])
@pytest.mark.parametrize(
    "settings",
    [{"text.usetex": True}, "dark_background", {"axes.grid": True, "lines.marker": "o"}],
    ids=str,
)
def test_settings_of_the_user_change_nothing(tmp_path: Path, suffix: str, settings: Any) -> None:
    usual = _drawn(tmp_path / f"usual{suffix}")
    with mpl.rc_context():
        if isinstance(settings, str):
            import matplotlib.style  # noqa: PLC0415 - only for this case

            matplotlib.style.use(settings)
        else:
            mpl.rcParams.update(settings)
        assert _drawn(tmp_path / f"set{suffix}") == usual


def _places(figure: Figure) -> list[tuple[float, float, float, float]]:
    """Where the panels of a figure are, with everything around them that needs room."""
    with style():
        grid = figure.subplots(2, 2, width_ratios=[1.7, 1], height_ratios=[3, 1])
        grid[0, 0].set_title("a title above an axis")
        rtt_axis(grid[0, 0], 0, 0.1, "base RTTs")
        grid[0, 1].set_ylabel("a label of\ntwo lines")
        grid[1, 0].set_yticks([0, 1], ["p0/t1_0", "▶ p0/t1_1"])
        grid[1, 1].set_xlabel("time (s)")
        figure.suptitle("simulated run")
        figure.legend(handles=[Line2D([], [], label="a line")], loc="outside lower center")
        FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call]
    return [axes.get_position().bounds for axes in figure.axes]


def test_labels_are_measured_once_and_panels_are_where_matplotlib_puts_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layout = ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.05)
    theirs = _places(Figure(figsize=(7.6, 4.0), layout=layout))
    measured = list[Axes]()
    measure = Axes.get_tightbbox

    def counted(axes: Axes, *args: Any, **options: Any) -> Any:
        measured.append(axes)
        return measure(axes, *args, **options)

    monkeypatch.setattr(Axes, "get_tightbbox", counted)
    assert np.allclose(_places(new_figure(4.0)), theirs, atol=0.002)
    assert len(measured) == 4


@pytest.mark.parametrize("over_axis", [False, True])
def test_titles_are_where_matplotlib_puts_them(over_axis: bool) -> None:
    bottoms = []
    for ours in (False, True):
        with style():
            figure = new_figure(2.0)
            axes = figure.add_subplot()
            if over_axis:
                rtt_axis(axes, 0, 0.1, "base RTTs from the fault")
            if ours:
                title(axes, "h0 → h4", over_axis=over_axis)
            else:
                axes.set_title("h0 → h4")
            FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call]
            above = axes._left_title.get_window_extent()  # type: ignore[attr-defined]
            bottoms.append((above.y0 - axes.get_window_extent().y1) * 72 / figure.dpi)
    assert bottoms[0] == pytest.approx(bottoms[1], abs=0.5)


DRAW = """
import sys
from importlib import import_module

import_module(sys.argv[1])
from testbed.results.report.figures.style import new_figure, style

with style():
    new_figure(2.0).add_subplot()
"""


@pytest.mark.parametrize(
    "module", sorted({module.rpartition(".")[0]: module for module in LOADING}.values())
)
@pytest.mark.parametrize("wrong", ["here", "file"])
def test_settings_that_cannot_be_read_end_nothing(tmp_path: Path, module: str, wrong: str) -> None:
    latin = "# caf\u00e9\n".encode("latin-1")
    """A file, and with each a backend and a style file."""
    environment = {
        **os.environ,
        "MPLCONFIGDIR": str(tmp_path / "config"),
        "MPLBACKEND": "foo",
    }
    (tmp_path / "config" / "stylelib").mkdir(parents=True)
    (tmp_path / "config" / "stylelib" / "mine.mplstyle").write_bytes(latin)
    if wrong == "here":
        (tmp_path / "matplotlibrc").write_bytes(latin)
    else:
        (tmp_path / "mine").write_bytes(latin)
        environment["MATPLOTLIBRC"] = str(tmp_path / "mine")
    done = completed([sys.executable, "-P", "-c", DRAW, module], cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr


def test_settings_that_can_be_read_are_those_of_other_figures(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text("lines.linewidth: 7\n")
    code = (
        "import os, sys; here = os.getcwd()\n"
        "import testbed.drawings, matplotlib\n"
        "assert os.getcwd() == here\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert os.environ['MPLBACKEND'] == 'svg' and 'MATPLOTLIBRC' not in os.environ\n"
        "assert matplotlib.rcParams['lines.linewidth'] == 7\n"
        "assert matplotlib.rcParams._get('backend') == 'svg'\n"
    )
    environment = {**os.environ, "MPLBACKEND": "svg"}
    done = completed([sys.executable, "-P", "-c", code], cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
