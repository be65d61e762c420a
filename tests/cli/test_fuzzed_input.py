"""Whatever a file holds, loading it ends in a scenario or in problems that a user understands."""

import copy
import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.model.checks import remarks
from testbed.model.errors import InputError, Problem
from testbed.model.files.scenarios import load_scenario

RIGHT: dict[str, Any] = {
    "name": "x",
    "description": "",
    "topology": {
        "name": "t",
        "planes": 2,
        "t0_per_plane": 2,
        "t1_per_plane": 2,
        "hosts_per_t0": 2,
        "port_rate": "100 Gbit/s",
        "fabric_rate": "100 Gbit/s",
        "delay": {"nic": "4 us", "switch": "1 us"},
        "dilation": 10000,
    },
    "seed": 1,
    "duration": "10 s",
    "workload": {
        "kind": "write_bw",
        "pairs": [["h0", "h2"], ["h1", "h3"]],
        "bidirectional": True,
        "message_size": "1 MiB",
        "depth": 4,
    },
    "transport": {
        "kind": "mrc",
        "evs": 4,
        "backups": 0.25,
        "window": 1.5,
        "probe_successes": 3,
        "grey_probe_successes": 48,
    },
    "timeline": [
        {"kind": "cut", "target": "p0_t0_0--p0_t1_1", "at": "4 s", "for": "3 s"},
        {"kind": "blackhole", "target": "h0--p1_t0_0", "at": "2 s", "for": "1 s"},
    ],
}

words = st.sampled_from(
    ["h1", "h9", "p0_t0_0", "p1_t0_1--p1_t1_1", "cut", "mrc", "1 s", "100 ms", "1e9 bit/s", "9 KiB"]
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-2, 12)
    | st.floats()
    | words
    | st.text(max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@st.composite
def damaged(draw: st.DrawFn) -> Any:
    """The right scenario with up to three parts replaced, removed or added."""
    data = copy.deepcopy(RIGHT)
    for _ in range(draw(st.integers(0, 3))):
        part: Any = data
        while True:
            keys = list(part) if isinstance(part, dict) else list(range(len(part)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(part[key], (dict, list)) and draw(st.integers(0, 3)):
                part = part[key]
                continue
            match draw(st.sampled_from(["replace", "remove", "add"])):
                case "replace":
                    part[key] = draw(values)
                case "remove":
                    del part[key]
                case _ if isinstance(part, dict):
                    part[draw(st.text(max_size=8))] = draw(values)
                case _:
                    part.append(draw(values))
            break
    return data


@settings(max_examples=300, deadline=None)
@given(damaged())
def test_a_damaged_scenario_is_loaded_or_refused_in_plain_words(data: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "x.yaml"
        file.write_text(yaml.safe_dump(data, allow_unicode=True), encoding="utf-8")
        problems: list[Problem] = []
        try:
            scenario = load_scenario(str(file))
        except InputError as error:
            problems = error.problems
        else:
            assert all(remark.what for remark in remarks(scenario))
            return
    assert problems
    for problem in problems:
        assert problem.where.startswith(("topology", str(file)))
        assert problem.expected
        for word in ("Input should", "pydantic", "Value error", "Field required"):
            assert word not in str(problem)
