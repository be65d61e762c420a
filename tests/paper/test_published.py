"""Results add up in one file: by seeds, as long as they are of the same runs and bounds."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from testbed.model.errors import InputError
from testbed.model.summary import State
from testbed.model.summary.unit import NEVER
from testbed.studies.paper.figure import at_least
from testbed.studies.paper.outcome import CheckOutcome, FigureOutcome, FigureRun
from testbed.studies.paper.planning import select_figures
from testbed.studies.paper.published import (
    PublishedCheck,
    PublishedFigure,
    PublishedResults,
    PublishedSeeds,
    merged,
    published_figure,
    read_results,
    write_results,
)


def _published(
    values: Mapping[tuple[int, ...], tuple[float, ...]],
    *,
    low: float = 0.9,
    setup: str = "as before",
    verdict: State = "trusted",
    what: str = "share",
) -> PublishedFigure:
    """The results of seeds that have one check."""
    return PublishedFigure(
        figure="9a",
        form="simulated",
        setup=setup,
        checks=(PublishedCheck(what=what, low=low, high=None, form="{:.1%}"),),
        results=tuple(
            PublishedSeeds(
                seeds=seeds,
                values=(each,),
                verdict=verdict,
                runs=len(seeds),
                trusted=len(seeds) if verdict == "trusted" else 0,
            )
            for seeds, each in values.items()
        ),
    )


def _values(figure: PublishedFigure) -> tuple[float, ...]:
    (check,) = figure.outcome.checks
    return check.values


def test_seeds_of_several_sessions_add_up() -> None:
    first, second = (
        _published({(1,): (0.8,), (3,): (0.95,)}),
        _published({(2,): (0.96,), (3,): (0.97,)}),
    )
    both = merged(first, second, compares_seeds=False)
    assert both.seeds == (1, 2, 3)
    assert _values(both) == (0.8, 0.96, 0.97)
    assert both.outcome.checks[0].measured == "96.0% (80.0% to 97.0%), 2 of 3 seeds within"
    assert both.outcome.holds == "yes"


def test_what_runs_damaged_is_kept() -> None:
    intact = _published({(1,): (0.95,), (2,): (0.95,)})
    first, second = intact.results
    results = (first, second.model_copy(update={"bytes_damaged": 4096}))
    outcome = intact.model_copy(update={"results": results}).outcome
    assert (intact.outcome.holds, outcome.holds, outcome.bytes_damaged) == ("yes", "no", 4096)


def test_a_worse_run_of_a_seed_does_not_replace_a_better_one() -> None:
    good, poor = _published({(1,): (0.95,)}), _published({(1,): (0.5,)}, verdict="degraded")
    assert _values(merged(good, poor, compares_seeds=False)) == (0.95,)
    assert _values(merged(poor, good, compares_seeds=False)) == (0.95,)
    assert poor.outcome.holds == "not trusted"
    assert poor.outcome.trust_note == "0 of 1 runs trusted"


def test_runs_that_are_set_up_or_checked_otherwise_replace_the_others() -> None:
    known = _published({(1,): (0.8,), (2,): (0.8,)})
    for made in (
        _published({(1,): (0.95,)}, setup="another", low=0.5),
        _published({(1,): (0.95,)}, what="another share"),
    ):
        assert merged(known, made, compares_seeds=False) == made


def test_results_of_a_part_of_the_runs_do_not_replace_those_of_all() -> None:
    known = _published({(1,): (0.95,)})
    checks = (*known.checks, known.checks[0].model_copy(update={"what": "stall"}))
    (result,) = known.results
    results = (result.model_copy(update={"runs": 2, "values": ((0.95,), (0.95,))}),)
    both = known.model_copy(update={"checks": checks, "results": results})
    with pytest.raises(InputError, match=r"(?s)found 1 checks, expected 2 checks.*--seeds 3"):
        merged(both, known, compares_seeds=False)


def test_a_check_that_is_gone_replaces_results_that_had_it() -> None:
    known = _published({(1,): (0.95,)})
    checks = (*known.checks, known.checks[0].model_copy(update={"what": "stall"}))
    both = known.model_copy(update={"checks": checks})
    assert merged(both, known, compares_seeds=False) == known


def test_bounds_do_not_move_after_a_run() -> None:
    with pytest.raises(InputError, match=r"9a, simulated: share: found ≥ 80.0%, expected ≥ 90"):
        merged(
            _published({(1,): (0.85,)}), _published({(2,): (0.85,)}, low=0.8), compares_seeds=False
        )


def test_seeds_of_which_only_the_range_is_known_stay_until_each_is_made() -> None:
    known = _published({(1, 2, 3): (0.7, 0.8, 0.9)})
    two = merged(known, _published({(1,): (0.95,), (2,): (0.95,)}), compares_seeds=False)
    assert _values(two) == (0.7, 0.8, 0.9)
    three = merged(known, _published({(n,): (0.95,) for n in (1, 2, 3)}), compares_seeds=False)
    assert _values(three) == (0.95, 0.95, 0.95)


def test_seeds_that_are_judged_together_are_replaced_by_as_many() -> None:
    known = _published({(1, 2, 3): (0.7, 0.8, 0.9)})
    fewer, more = _published({(1, 2): (0.9, 0.9)}), _published({(1, 2, 3, 4): (0.9,) * 4}, low=0.7)
    assert merged(known, fewer, compares_seeds=True) == known
    assert merged(known, more, compares_seeds=True) == more


def test_a_file_has_all_that_it_is_given(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    assert read_results(file).figures == {}
    published = _published({(1,): (NEVER,), (2,): (0.95,)}, verdict="degraded")
    write_results(file, PublishedResults({}).adding([published]))
    assert read_results(file).figures == {("9a", "simulated"): published}


def test_an_outcome_is_kept_by_seed(tmp_path: Path) -> None:
    (figure,) = select_figures(["9a"])
    (tmp_path / "manifest.json").write_text('{"code": "abc", "git": null}')
    runs = tuple(
        FigureRun(
            name="nic-links-one-by-one",
            directory=tmp_path,
            seed=seed,
            dilation=1e4,
            verdict=verdict,
            reasons=(),
            attempts=1,
            expected_load=None,
        )
        for seed, verdict in ((1, "trusted"), (2, "degraded"))
    )
    check = CheckOutcome.model_validate(at_least("share", 0.95, 0.9), from_attributes=True)
    check = check.model_copy(update={"values": (0.951234567, 0.97)})
    outcome = FigureOutcome(
        number="9a", form="simulated", setup="as set up", checks=(check,), seeds=(1, 2), runs=runs
    )
    published = published_figure(figure, outcome)
    assert published.setup == "as set up"
    assert published.checks == (PublishedCheck(what="share", low=0.9, high=None, form="{:.1%}"),)
    assert [result.seeds for result in published.results] == [(1,), (2,)]
    assert [result.values for result in published.results] == [((0.951235,),), ((0.97,),)]
    assert [result.verdict for result in published.results] == ["trusted", "degraded"]
    assert {result.commit for result in published.results} == {"abc"}
    assert published.outcome.trust_note == "1 of 2 runs trusted"
