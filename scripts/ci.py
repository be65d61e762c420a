"""Run a scenario in somebody's CI: what `action.yml` and `scripts/gitlab.yml` do.

usage: ci.py doctor | ci.py run | ci.py all

`doctor` writes the table of what this runner can do into the job's summary. `run` makes the run, on
an emulated fabric where the runner can do that, else with the simulator; it repeats an untrusted
run, and writes annotations, outputs and the job's summary. `all` does both.

All input comes from the environment, as nothing of it must be read by a shell:

TESTBED_SCENARIO   name or file
TESTBED_SEED       instead of the scenario's
TESTBED_REPEAT     number of runs, each with the next seed
TESTBED_SET        lines of KEY=VALUE, for --set
TESTBED_SIMULATE   true: never emulate
TESTBED_ALLOW_CODE true: execute the commands or classes that the file names (--allow-code)
TESTBED_EXPECT     lines of KEY=VALUE, such as `faults.recovery_rtt={at_most: 10}`
TESTBED_RESULTS    directory of all results
TESTBED_RETRIES    how often an untrusted run is made again
TESTBED_UNTRUSTED  warn or fail: what a run means that is still untrusted then; where it is to fail,
                   a degraded run counts as untrusted, too (--require-trusted)

GITHUB_OUTPUT, GITHUB_STEP_SUMMARY, GITHUB_WORKSPACE and GITHUB_ACTIONS are GitHub's own. Elsewhere
the summary is printed.

Elsewhere than on GitHub the expectations of the run that counts are in TESTBED_RESULTS/junit.xml.

Exit status: that of `testbed run`; 0 for a run that cannot be trusted, where that is to warn only.
"""

import html
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from testbed.model.errors import ExitStatus, InputError, TestbedError, is_crash
from testbed.model.files.catalog import find_scenario
from testbed.model.files.reading import read_document
from testbed.model.run_files.layout import JUNIT, REPORT, SUMMARY
from testbed.model.summary import Expectation, Summary
from testbed.model.summary.scopes import outcome
from testbed.runs.series import INDEX

MAX_SUMMARY_BYTES = 890_000
"""GitHub drops a summary of more than 1 MiB as a whole. Words on what is left out come on top."""

NEAR = 0.2
"""A figure is near its bound within this share of the bound."""

MAX_ANNOTATIONS = 10
"""GitHub shows ten errors of a step, and no more."""

PICTURE_POINTS = 60
MEANINGS: dict[int, str] = {
    ExitStatus.AS_EXPECTED: "as expected",
    ExitStatus.FAILED: "FAILED",
    ExitStatus.WRONG_INPUT: "wrong input",
    ExitStatus.MACHINE_CANNOT: "this machine cannot run it",
    ExitStatus.UNTRUSTED: "the run cannot be trusted",
    ExitStatus.CRASHED: "the testbed crashed",
}


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the workflow asks for; see the text at the top."""

    scenario: str
    results: Path
    options: tuple[str, ...]
    several: bool
    simulate: bool
    retries: int
    untrusted_fails: bool

    @classmethod
    def of_environment(cls) -> "Inputs":
        """Read and check them.

        Raises:
            InputError: one is wrong.
        """
        scenario, results = _text("SCENARIO") or "link-failure", _text("RESULTS") or "results"
        for key, value in (("scenario", scenario), ("results", results)):
            if value.startswith("-"):
                raise InputError.of(key, value, "a name or a path", f"write ./{value}")
        seed, repeat = _text("SEED"), _number("REPEAT", 1)
        untrusted_fails = _choice("UNTRUSTED", ("warn", "fail")) == "fail"
        options = [*(("--seed", seed) if seed else ()), "--repeat", str(repeat)]
        if untrusted_fails:
            options.append("--require-trusted")
        if _choice("ALLOW_CODE", ("false", "true")) == "true":
            options.append("--allow-code")
        for key, prefix in (("SET", ""), ("EXPECT", "expect.")):
            for line in _text(key).splitlines():
                if line.strip():
                    options += ["--set", prefix + line.strip()]
        return cls(
            scenario=scenario,
            results=Path(results),
            options=tuple(options),
            several=repeat > 1,
            simulate=_choice("SIMULATE", ("false", "true")) == "true",
            retries=_number("RETRIES", 2),
            untrusted_fails=untrusted_fails,
        )


def _text(key: str) -> str:
    return os.environ.get(f"TESTBED_{key}", "").strip()


def _number(key: str, default: int) -> int:
    text = _text(key) or str(default)
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise InputError.of(key.lower(), text, "a whole number of nine digits at most")
    return int(text)


def _choice(key: str, choices: Sequence[str]) -> str:
    text = _text(key) or choices[0]
    if text not in choices:
        raise InputError.of(key.lower(), text, " or ".join(choices))
    return text


# ---- the commands --------------------------------------------------------------------------------


def doctor() -> int:
    """Show what this runner can do, and put into the output `able` whether it can emulate.

    `run` takes that from TESTBED_ABLE.
    """
    done = _testbed("doctor", "--ci")
    write_summary([done.stdout])
    if done.returncode not in {ExitStatus.AS_EXPECTED, ExitStatus.MACHINE_CANNOT}:
        # Not that the machine cannot do it: a simulation must not make up for that.
        annotate("error", done.stderr.strip() or f"testbed doctor: exit status {done.returncode}")
        return done.returncode
    able = "true" if done.returncode == ExitStatus.AS_EXPECTED else "false"
    write_outputs(able=able)
    os.environ["TESTBED_ABLE"] = able
    return 0


def run() -> int:
    """Make the run, and report it."""
    inputs = Inputs.of_environment()
    simulated = inputs.simulate or _text("ABLE") == "false"
    notes = []
    if simulated and not inputs.simulate:
        notes.append(
            "This machine cannot emulate a fabric (see the table), so this is a simulation."
        )
        annotate("warning", notes[0])
    command = ["simulate" if simulated else "run", inputs.scenario, "--json", *inputs.options]
    command += ["--results", str(inputs.results)]

    for attempt in range(inputs.retries + 1):
        done = _testbed(*command, root=not simulated)
        status = done.returncode
        if status != ExitStatus.UNTRUSTED or attempt == inputs.retries:
            break
        print(f"untrusted: retry {attempt + 1} of {inputs.retries}", flush=True)
    answer = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    runs = list(_summaries(answer))
    result = Path(answer.get("run") or answer.get("series") or "")
    for run_directory, summary in runs:
        # What cannot be trusted has missed nothing.
        if summary.usable(require_trusted=inputs.untrusted_fails):
            annotate_missed(inputs.scenario, summary, run_directory)
    notes += map(cell, warn_of_near(runs) if simulated > inputs.simulate else ())
    means = ExitStatus.CRASHED if is_crash(status) else status
    meaning = MEANINGS.get(means, f"exit status {status}")
    forgiven = status == ExitStatus.UNTRUSTED and not inputs.untrusted_fails
    level = "warning" if forgiven else "error"
    unfinished = [ended for ended in answer.get("done", ()) if ended["error"]]
    for ended in unfinished:
        name = answer["plan"]["cases"][ended["case"] - 1]["name"]
        told = f"{name}, seed {ended['seed']}: {ended['error']}"
        notes.append(cell(told))
        annotate(level, told)
    if status == ExitStatus.UNTRUSTED:
        annotate(level, f"{inputs.scenario}: {meaning}, after {attempt + 1} tries")
    elif status != ExitStatus.AS_EXPECTED and not runs:
        annotate("error", done.stderr.strip() or meaning)
    files = (SUMMARY if "run" in answer else INDEX, JUNIT, REPORT)
    places = [str(result / file) if answer else "" for file in files]
    write_outputs(
        verdict="invalid" if unfinished else _worst_verdict([summary for _, summary in runs]),
        **{"exit-status": str(status)},
        **dict(zip(("summary", "junit", "report"), places, strict=True)),
    )
    if answer and not os.environ.get("GITHUB_OUTPUT"):
        shutil.copyfile(result / JUNIT, inputs.results / JUNIT)
    how = " (simulated)" if simulated else ""
    heading = f"## {cell(inputs.scenario)}{how}: {meaning}\n"
    write_summary([heading, *(f"{note}\n" for note in notes), *_sections(runs, done.stderr)])
    return 0 if forgiven else status


def _testbed(*arguments: str, root: bool = True) -> "subprocess.CompletedProcess[str]":
    """Run a command of the testbed; as root where that is needed and sudo gives it."""
    command = [
        *(_sudo() if root else ()),
        str(Path(sys.executable).with_name("testbed")),
        *arguments,
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, encoding="utf-8", errors="replace"
    )
    sys.stderr.write(without_commands(done.stderr))
    sys.stderr.flush()
    return done


def _sudo() -> tuple[str, ...]:
    """What a command that needs root is called by: nothing where this is root, or cannot be."""
    if os.geteuid() == 0 or shutil.which("sudo") is None:
        return ()
    allowed = subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False)
    return ("sudo", "-n", "--") if allowed.returncode == 0 else ()


def _summaries(answer: dict[str, Any]) -> Iterator[tuple[Path, Summary]]:
    """The finished runs of the answer of `testbed run --json`, one or those of a series."""
    if "run" in answer:
        directories = [Path(answer["run"])]
    else:
        series = Path(answer.get("series", ""))
        directories = [series / run["run"] for run in answer.get("done", []) if not run["error"]]
    for directory in directories:
        yield (
            directory,
            Summary.model_validate_json((directory / SUMMARY).read_text(encoding="utf-8")),
        )


def _worst_verdict(summaries: Sequence[Summary]) -> str:
    order = ("invalid", "degraded", "trusted")
    return min((summary.verdict for summary in summaries), key=order.index, default="")


# ---- annotations ---------------------------------------------------------------------------------

annotated = 0


def annotate_missed(scenario: str, summary: Summary, directory: Path) -> None:
    """An annotation for each expectation that is not met, on its line of the scenario."""
    file = find_scenario(scenario)
    document = read_document(file)
    for missed in (expected for expected in summary.expectations if not expected.holds):
        line = document.lines.get(f"expect.{missed.scope}.{missed.figure}")
        message = (
            f"{missed.scope}: {missed.figure} {missed.bound}: {outcome(missed)} "
            f"(seed {summary.seed}, verdict {summary.verdict}, {directory})"
        )
        annotate("error", message, file if line else None, line)
    if not summary.integrity.intact:
        annotate(
            "error", f"seed {summary.seed}: bytes were lost or corrupted ({directory})", file, 1
        )


def is_near(expected: Expectation) -> bool:
    """Whether a figure meets its bound, but only just; a count that must be exact is never near."""
    value, ends = expected.value, re.findall(r"at (?:least|most) (\S+)", expected.bound)
    return expected.holds and any(
        abs((value or 0.0) - float(end)) <= NEAR * abs(float(end)) for end in ends if float(end)
    )


def warn_of_near(runs: Sequence[tuple[Path, Summary]]) -> Iterator[str]:
    """Warn of the figures of simulations that took the place of emulated runs."""
    for _, summary in runs:
        for near in filter(is_near, summary.expectations):
            told = (
                f"{near.whose}: {near.figure} is near its bound ({near.bound}: {outcome(near)}): "
                "an emulated run may miss it"
            )
            annotate("warning", told)
            yield told


def annotate(level: str, message: str, file: Path | None = None, line: int | None = None) -> None:
    """Print a workflow command; elsewhere than on GitHub, a line that people can read.

    Only a file of the workspace can be annotated.
    """
    global annotated  # noqa: PLW0603 - there is one limit for the whole step
    place = _in_workspace(file) if file else None
    if os.environ.get("GITHUB_ACTIONS") != "true":
        where = f"{file}:{line}: " if file else ""
        print(f"{where}{level}: {message}", flush=True)
        return
    annotated += 1
    if annotated > MAX_ANNOTATIONS:
        print(without_commands(message), flush=True)
        return
    properties = f" file={escape_property(place)},line={line}" if place else ""
    print(f"::{level}{properties}::{escape_data(message)}", flush=True)


def _in_workspace(file: Path) -> str | None:
    workspace = Path(os.environ.get("GITHUB_WORKSPACE", ".")).resolve()
    resolved = file.resolve()
    return str(resolved.relative_to(workspace)) if resolved.is_relative_to(workspace) else None


def without_commands(text: str) -> str:
    """A text of others, such as a message that quotes a scenario, without workflow commands.

    GitHub's runner obeys a line that begins with `::`, and `##[` anywhere, on stdout and stderr.
    """
    return re.sub(r"(?m)^(\s*):(?=:)", r"\1: ", text).replace("##[", "# #[")


def escape_data(text: str) -> str:
    """Escape the message of a workflow command (actions/toolkit, command.ts)."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    """Escape a property of a workflow command."""
    return escape_data(text).replace(":", "%3A").replace(",", "%2C")


# ---- outputs and summary -------------------------------------------------------------------------


def write_outputs(**values: str) -> None:
    """Set outputs of this step; a random delimiter keeps a value from ending itself early."""
    file = os.environ.get("GITHUB_OUTPUT")
    if not file:
        return
    with Path(file).open("a", encoding="utf-8") as output:
        for name, value in values.items():
            end = secrets.token_hex(16)
            output.write(f"{name}<<{end}\n{value}\n{end}\n")


def write_summary(sections: Sequence[str]) -> None:
    """Append to the job's summary, as far as there is room; without one, print it."""
    text, left_out = "", 0
    for section in sections:
        if len((text + section).encode()) > MAX_SUMMARY_BYTES:
            left_out += 1
        else:
            text += section + "\n"
    if left_out:
        text += f"{left_out} parts are left out, as a summary must be small.\n"
    file = os.environ.get("GITHUB_STEP_SUMMARY")
    if file:
        with Path(file).open("a", encoding="utf-8") as output:
            output.write(text)
    else:
        print(text, flush=True)


def _sections(runs: Sequence[tuple[Path, Summary]], errors: str) -> Iterator[str]:
    if not runs:
        yield f"<pre>{html.escape(errors[-10_000:])}</pre>\n"
    for index, (directory, summary) in enumerate(runs):
        settings = f"seed {summary.seed}, {summary.duration_s:g} s, dilation {summary.dilation:g}"
        yield f"**{summary.verdict}** ({settings})\n"
        yield "".join(f"- {cell(reason)}\n" for reason in summary.reasons)
        yield _expectation_table(summary)
        if index == 0:
            yield _picture(directory, summary)


def _expectation_table(summary: Summary) -> str:
    """Figures against bounds."""
    if not summary.expectations:
        return "The scenario expects nothing.\n"
    rows = ["| | of | figure | bound | measured |", "|---|---|---|---|---|"]
    rows += [
        f"| {'met' if e.holds else '**missed**'} | {cell(e.scope)} | {cell(e.figure)} "
        f"| {cell(e.bound)} | {cell(outcome(e))} |"
        for e in summary.expectations
    ]
    return "\n".join(rows) + "\n"


def _picture(directory: Path, summary: Summary) -> str:
    """Goodput over time as a chart that GitHub and GitLab draw from its text."""
    width_s = summary.duration_s / PICTURE_POINTS
    arrivals = pl.read_parquet(directory / "arrivals.parquet").filter(
        pl.col("t").is_between(0, summary.duration_s, closed="left")
    )
    placed = arrivals.group_by((pl.col("t") / width_s).cast(pl.Int64).alias("bin")).agg(
        pl.col("bytes").sum()
    )
    by_bin = dict(placed.iter_rows())
    mbps = [by_bin.get(point, 0) * 8 / width_s / 1e6 for point in range(PICTURE_POINTS)]
    return (
        "```mermaid\nxychart-beta\n"
        '  title "Goodput of all flows, as emulated (Mbit/s)"\n'
        f'  x-axis "seconds" 0 --> {summary.duration_s:g}\n'
        f"  line [{', '.join(f'{value:.2f}' for value in mbps)}]\n```\n"
    )


def cell(text: str) -> str:
    """Text that means itself in a cell of a Markdown table."""
    escaped = html.escape(text, quote=False).replace("\n", " ")
    return "".join(f"\\{char}" if char in "|\\`*_[]" else char for char in escaped)


def main() -> int:
    """Run the command that is named."""
    commands: dict[str, Callable[[], int]] = {
        "doctor": doctor,
        "run": run,
        "all": lambda: doctor() or run(),
    }
    if len(sys.argv) != 2 or sys.argv[1] not in commands:  # noqa: PLR2004
        print(__doc__, file=sys.stderr)
        return ExitStatus.WRONG_INPUT
    try:
        return commands[sys.argv[1]]()
    except TestbedError as error:
        annotate("error", str(error))
        return error.exit_status
    except Exception as error:  # noqa: BLE001 - no other status says that it is the program's mistake
        sys.stderr.write(without_commands(traceback.format_exc()))
        annotate("error", f"{type(error).__name__}: {error}")
        return ExitStatus.CRASHED


if __name__ == "__main__":
    sys.exit(main())
