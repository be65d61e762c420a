"""Figures are drawn in the project's style, whatever the user has set."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

from testbed.results.report.figures.style import new_figure, style, write


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
