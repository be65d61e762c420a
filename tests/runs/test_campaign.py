"""A series that is begun, or continued with what is left of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from testbed.model.files.scenarios import Dilation
from testbed.model.scenario import Scenario
from testbed.runs.campaign import _begin_or_continue, _chosen_in_store
from testbed.runs.cluster.executor import ClusterExecutor
from testbed.runs.fitting import Machines
from testbed.runs.job import Executor
from testbed.runs.process import LocalExecutor
from testbed.runs.series import SeriesCase, SeriesPlan


def _auto(name: str, dilation: float | None, duration: str = "1 s") -> SeriesPlan:
    """A series with `dilation: auto`, at the dilation that was chosen."""
    content = f"{name}, {duration}, {dilation}"
    case = SeriesCase(
        number=1,
        name=name,
        folder=f"1-{name}",
        label=name,
        scenario=name,
        settings={},
        seeds=[1, 2],
        content=content,
    )
    return SeriesPlan(name=name, simulated=False, settings={}, dilation=dilation, cases=[case])


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Have the machines carry what is asked, or not."""
    return lambda answer: monkeypatch.setattr(Machines, "carry", lambda *_: answer)


def test_a_series_whose_directory_is_lost_keeps_its_dilation(
    tmp_path: Path, carried: Callable[[bool], None]
) -> None:
    """Else what is finished in the store would be made again. Of others nothing is there."""
    store = ClusterExecutor(cast("Any", None), tmp_path, f"file://{tmp_path}/store")

    def kept(executor: Executor, name: str, duration: str = "1 s") -> float | None:
        """The dilation that is kept for a series of this name."""

        def planned(dilation: Dilation) -> tuple[SeriesPlan, dict[int, Scenario]]:
            return _auto(name, dilation(cast("Any", None)), duration), {}

        return _chosen_in_store(executor, planned, Machines(tuple), [])

    carried(True)
    assert kept(store, "x") is None
    _begin_or_continue(_auto("x", 50_000.0), tmp_path, store)
    (tmp_path / "sweep.json").unlink()
    assert kept(store, "x") == 50_000.0
    assert kept(store, "y") is None
    assert kept(store, "x", "2 s") is None, "none of its runs is in the store"
    assert kept(LocalExecutor(tmp_path), "x") is None
    carried(False)
    assert kept(store, "x") is None, "slower machines"
