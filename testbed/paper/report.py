"""One HTML file with every figure beside what the paper saw; nothing is loaded from elsewhere."""

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from testbed.paper.outcome import Outcome


def render(outcomes: Sequence[Outcome]) -> str:
    """The report as HTML."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("testbed.paper"), PackageLoader("testbed.results")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "inlined": _inlined,
        "pretty": lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    }
    answers = [outcome.holds for outcome in outcomes]
    return environment.get_template("paper.html.j2").render(
        outcomes=outcomes,
        holding=answers.count("yes"),
        made=len(answers) - answers.count("not run"),
        simulated=any(run.summary.simulated for one in outcomes for run in one.runs.values()),
        emulated=any(not run.summary.simulated for one in outcomes for run in one.runs.values()),
    )


def as_json(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """The table, for programs."""
    return [
        {
            "figure": one.figure.number,
            "title": one.figure.title,
            "saw": one.figure.saw,
            "holds": one.holds,
            "seeds": list(one.seeds),
            "checks": [
                {
                    "what": check.what,
                    "measured": check.measured,
                    "values": list(check.values),
                    "bound": check.bound,
                    "holds": check.holds,
                }
                for check in one.checks
            ],
            "runs": {
                name: {
                    "directory": str(run.directory),
                    "simulated": run.summary.simulated,
                    "verdict": run.summary.verdict,
                    "reasons": list(run.summary.reasons),
                }
                for name, run in one.runs.items()
            },
            "failures": dict(one.failures),
        }
        for one in outcomes
    ]


def _inlined(picture: Path) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(picture.read_bytes()).decode()}"
