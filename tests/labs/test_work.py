"""A lab from its start to the last check, as a student works on it."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest
import yaml

from testbed.model.errors import InputError
from testbed.model.files.reading import Document, parse_document
from testbed.model.run_files.layout import RUN
from testbed.results.code_version import code_version
from testbed.studies.labs.answers import parse_answer, parsed
from testbed.studies.labs.assignment import Assignment
from testbed.studies.labs.authoring import trial_key
from testbed.studies.labs.checking import (
    _names_difference,
    _numbers_in,
    _quotes,
    _refuse_misspelt,
    _unquoted,
    check,
)
from testbed.studies.labs.evidence import Evidence
from testbed.studies.labs.grading.identity import prints_of
from testbed.studies.labs.grading.submission import FILES, submit, unpack
from testbed.studies.labs.lab import NamesAnswer
from testbed.studies.labs.library import LABS, find_lab, load_lab
from testbed.studies.labs.predicting import hints, outcome, outcomes, predict
from testbed.studies.labs.runs import _check_repeatable, checked_run, make_run, shown_directory
from testbed.studies.labs.students import seed_of, student_key
from testbed.studies.labs.work import Journal, Work, find_work, set_aside, start
from tests.modules import module_at

from .conftest import FIRST_FAILURE


def _ignore(*_: object) -> None:
    pass


def _answers(work: Work, **answers: object) -> None:
    work.answers.write_text(yaml.safe_dump({k.replace("_", "-"): v for k, v in answers.items()}))


def test_a_run_without_its_prediction_is_refused(work: Work) -> None:
    with pytest.raises(InputError, match="your prediction detection"):
        checked_run(work, "failure")
    for task in ("detection", "exposure", "stall"):
        predict(work, work.task(task), "1 RTT", None)
    with pytest.raises(InputError, match="testbed lab predict deficit"):
        checked_run(work, None)
    predict(work, work.task("deficit"), "1 RTT", "50%")
    assert checked_run(work, None) == "failure"


def test_code_that_does_something_else_the_second_time_is_refused(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a class that draws random numbers without its seed."""
    (tmp_path / RUN).write_text("7 packets")

    def simulate_again(result: str) -> None:
        simulate = "testbed.sim.simulate"
        monkeypatch.setattr(simulate, lambda _, place: (place / RUN).write_text(result))
        _check_repeatable(work.assignment.scenario("failure"), tmp_path)

    simulate_again("7 packets")
    with pytest.raises(InputError, match=r"two runs of one seed that differ \(in run.json\)"):
        simulate_again("8 packets")


@pytest.mark.parametrize("verdict", ["trusted", "invalid"])
def test_a_prediction_after_the_run_is_refused(predicted: Work, verdict: str) -> None:
    """Also after one that does not count: its figures were shown, too."""
    predicted.journal.append("run", run="failure", directory="results/x", verdict=verdict)
    with pytest.raises(InputError, match="a prediction before the run failure"):
        predict(predicted, predicted.task("stall"), "1.2 RTT", None)


def test_an_untrusted_run_does_not_count(predicted: Work) -> None:
    predicted.journal.append("run", run="failure", directory="results/x", verdict="invalid")
    assert predicted.counted_run("failure") is None
    assert checked_run(predicted, None) == "failure"


def test_a_student_works_through_the_lab(predicted: Work) -> None:
    work = predicted
    made = make_run(work, "failure", _ignore, drawn=False)
    assert made.summary.verdict == "trusted"
    stall, entry = work.task("stall"), work.last("prediction", task="stall")
    assert entry is not None
    assert "you predicted 1 RTT, within 0.5 RTT; your run shows" in outcome(
        stall, entry, work.evidence()
    )
    plane, t1 = work.assignment.drawn["plane"], work.assignment.drawn["t1"]
    dead = f"p{plane}/t1_{t1}"
    losses = pl.read_parquet(made.directory.path / "losses.parquet")
    last = losses["seq"].to_list()[-1]
    first = losses["seq"].to_list()[0]
    _answers(work, substitute=dead, awaited=last, before_it_died=first)
    document, evidence = work.read_answers(), work.evidence()

    _answers(work, substitute=dead.replace("/", "_"), awaited=last, before_it_died=0)
    with pytest.raises(InputError, match=f"did you mean {dead}?"):
        check(work.task("substitute"), work.read_answers(), evidence)

    _answers(work, substitute="t1_2")
    with pytest.raises(InputError, match="expected paths, such as p0/t1_2"):
        check(work.task("substitute"), work.read_answers(), evidence)

    left = check(work.task("substitute"), document, evidence)
    assert not left.passed
    assert left.reason.startswith(f"{dead} is the path over the dead link p{plane}_t0_0")
    assert "was not the first" in check(work.task("awaited"), document, evidence).reason
    said = check(work.task("before-it-died"), document, evidence).reason
    assert "was the first of them" in said
    assert check(work.task("why-longer"), document, evidence).missing

    solve = module_at(FIRST_FAILURE / "solution/solve.py")
    _answers(work, **{k.replace("-", "_"): v for k, v in solve.answers(work.path).items()})
    document = work.read_answers()
    assert all(
        check(task, document, evidence).passed for task in work.assignment.directory.lab.questions
    )
    _answers(work, before_it_died=last, awaited=last)
    document = work.read_answers()
    for task, wrong in (
        ("before-it-died", "was sent later"),
        ("awaited", "not the first"),
    ):
        told = [check(work.task(task), document, evidence, attempts=n).reason for n in (4, 5)]
        assert wrong in told[0], told[0]
        assert "is not what your run shows. " in told[1], told[1]
        assert "testbed lab table failure losses" in told[1]
    quoting_nothing = " ".join(first + second for first in "abcdefgh" for second in "stuvwxyz")
    _answers(work, explain=quoting_nothing)
    unquoted = check(work.task("explain"), work.read_answers(), evidence)
    figure = "the figure detection_rtt of your run failure"
    assert unquoted.reason == f"The text does not quote {figure}."
    work.answers.write_text(f"explain: {quoting_nothing} flow #2 lost 12 packets\n")
    cut = check(work.task("explain"), work.read_answers(), evidence).reason
    assert cut.startswith(f"{unquoted.reason} Look: the text ends where # begins a remark")
    table = made.directory.path / "losses.parquet"
    whole = table.read_bytes()
    table.write_bytes(whole[:4] + b"\xff" * 60 + whole[64:])  # its columns are still told
    with pytest.raises(InputError, match="make it again: testbed lab run failure"):
        work.evidence().data("failure")


def test_the_outcome_is_that_of_the_code_that_the_prediction_is_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.studies.labs.predicting.outcome", lambda *_: "right")
    work = start(load_lab(LABS / "09-path-selector"), tmp_path, "", trial_key(1))
    work.journal.append("prediction", task="starter-deficit", value=2, text="", within=0.5)
    for verdict, said in (
        ("invalid", ["starter-deficit: right"]),
        ("trusted", ["starter-deficit: right"]),
        ("trusted", []),
    ):
        work.journal.append("run", run="practice", directory="results/x", verdict=verdict)
        assert outcomes(work, "practice") == said


def test_hints_open_with_different_attempts(work: Work) -> None:
    task = work.task("substitute")

    def attempt(answer: str, *, passed: bool = False) -> None:
        work.journal.append("attempt", task=task.id, answer=answer, passed=passed)

    assert hints(work, task).shown == ()
    attempt("p0/t1_0")
    attempt("p0/t1_0")
    assert len(hints(work, task).shown) == 1
    attempt("p0/t1_1")
    assert len(hints(work, task).shown) == 2
    attempt("p0/t1_2", passed=True)
    assert len(hints(work, task).shown) == 3


def test_students_differ_and_each_stays_the_same(tmp_path: Path) -> None:
    lab = load_lab(FIRST_FAILURE)
    keys = [student_key(b"course", name) for name in ("ada", "bob", "eve", "dan")]
    seeds = [seed_of(key, lab.name) for key in keys]
    assert len({*seeds}) == len(seeds)
    drawn = [start(lab, tmp_path / key, "x", key).assignment.drawn for key in keys]
    again = [start(lab, tmp_path / key / "again", "x", key).assignment.drawn for key in keys]
    assert drawn == again
    assert len({json.dumps(dict(values)) for values in drawn}) > 1


@pytest.mark.parametrize(
    ("name", "spelt", "key"),
    [
        ("ada", ["Ada", "ada ", "ADA"], "bbb52608f513f143"),
        ("ada lovelace", [" Ada  Lovelace", "ada\N{NO-BREAK SPACE}lovelace"], "75150afa3203487a"),
        ("jos\u00e9 gro\u00df", ["Jose\u0301 Gro\u00df"], "5e052d8b37db695b"),
    ],
)
def test_a_key_is_that_of_the_name_in_any_spelling(name: str, spelt: list[str], key: str) -> None:
    """A key that was handed out to a name in lower case is still the same."""
    keys = {student_key(b"the key of a whole course", each) for each in (name, *spelt)}
    assert keys == {key}


def test_a_lab_is_found_by_number_name_and_path() -> None:
    for name in ("2", "02", "02-first-failure", "first-failure", str(FIRST_FAILURE)):
        assert find_lab(name).resolve() == FIRST_FAILURE.resolve()
    with pytest.raises(InputError, match="testbed lab list"):
        find_lab("77")
    with pytest.raises(InputError, match=r"did you mean 02-first-failure\?"):
        find_lab("first")


def test_work_is_found_from_below_and_named_from_above(work: Work) -> None:
    (work.path / "results").mkdir()
    assert find_work(work.path / "results").path.resolve() == work.path.resolve()
    with pytest.raises(InputError, match="cd 02-first-failure"):
        find_work(work.path.parent)
    work.journal.path.unlink()
    with pytest.raises(InputError, match=r"journal\.jsonl: found no such file.*\n.*LAB --reset"):
        find_work(work.path)


def test_a_run_counts_with_the_code_that_made_it(tmp_path: Path) -> None:
    work = start(load_lab(LABS / "09-path-selector"), tmp_path, "", trial_key(1))
    made, directory = work.assignment.code_digest("practice"), work.path / "results/x"
    directory.mkdir(parents=True)
    (directory / "summary.json").touch()
    said = {"run": "practice", "directory": "results/x", "verdict": "trusted", "code": made}
    work.journal.append("run", **said, version="0" * 16)  # that of another version
    assert work.counted_run("practice") is None
    work.journal.append("run", **said, version=code_version())
    assert work.counted_run("practice") is not None
    selector = work.path / "selector.py"
    source = selector.read_text()
    selector.write_text(f"{source}\n# changed\n")
    assert work.counted_run("practice") is None
    assert work.made_run("practice") is not None
    missing = check(work.task("practice-deficit"), work.read_answers(), work.evidence())
    assert missing.missing
    assert "made with selector.py as it is now: testbed lab run practice" in missing.reason
    selector.write_text(source)
    assert work.counted_run("practice") is not None
    shutil.rmtree(directory)
    assert work.counted_run("practice") is None


def test_what_a_students_class_imports_is_handed_in(tmp_path: Path) -> None:
    work = start(load_lab(LABS / "09-path-selector"), tmp_path, "", trial_key(1))
    alone = work.assignment.code_digest("practice")
    selector, beside = work.path / "selector.py", work.path / "planes.py"
    beside.write_text("FIRST = 0\n")
    (work.path / "unused.py").write_text("")
    assert work.assignment.code_digest("practice") == alone
    selector.write_text(f"import planes\n{selector.read_text()}")
    made = work.assignment.code_digest("practice")
    beside.write_text("FIRST = 1\n")
    assert len({alone, made, work.assignment.code_digest("practice")}) == 3
    submission = unpack(submit(work, tmp_path), tmp_path / "unpacked")
    handed_in = Assignment(work.assignment.directory, trial_key(1), submission.directory / FILES)
    assert handed_in.code_digest("practice") == work.assignment.code_digest("practice")
    (code,) = handed_in.scenario("practice").own_code.values()
    assert code.modules == {"planes": "FIRST = 1\n"}
    assert "planes.py" in prints_of(submission, work.assignment.directory)


def test_a_run_outside_the_lab_is_not_taken_for_one_of_the_lab(work: Work) -> None:
    """It moves the link `latest` of a run of the same name."""
    runs = work.path / "results/failure"
    for name in ("made", "other"):
        (runs / name).mkdir(parents=True)
    work.journal.append("run", run="failure", directory="results/failure/made", verdict="trusted")
    (runs / "latest").symlink_to("other")
    assert shown_directory(work, "failure") == runs / "made"


class _KilledError(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("call", ["copyfile", "append", "rename"])
def test_a_start_that_is_killed_leaves_nothing_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def killed(*_args: object, **_options: object) -> None:
        raise _KilledError

    owner = {"copyfile": shutil, "append": Journal, "rename": Path}[call]
    with monkeypatch.context() as patched:
        patched.setattr(owner, call, killed)
        with pytest.raises(_KilledError):
            start(load_lab(FIRST_FAILURE), tmp_path, "", trial_key(1))
    assert not (tmp_path / "02-first-failure").exists()
    work = start(load_lab(FIRST_FAILURE), tmp_path, "", trial_key(1))
    assert [path.name for path in tmp_path.iterdir()] == ["02-first-failure"]
    assert {path.name for path in work.path.iterdir()} == {
        *("handout.md", "glossary.md", "answers.yaml", ".lab")
    }


def test_a_lab_is_started_in_an_empty_directory_and_in_no_other(tmp_path: Path) -> None:
    (tmp_path / "02-first-failure").mkdir()
    start(load_lab(FIRST_FAILURE), tmp_path, "", trial_key(1))
    (tmp_path / "other/02-first-failure/mine").mkdir(parents=True)
    with pytest.raises(InputError, match=r"a directory with files.*\n.*move it away"):
        start(load_lab(FIRST_FAILURE), tmp_path / "other", "", trial_key(1))


def test_reset_keeps_the_old_work(work: Work) -> None:
    old = set_aside(work.path)
    assert old.name == "02-first-failure.old-1"
    new = start(load_lab(FIRST_FAILURE), work.path.parent, "ada", "0" * 16)
    assert len(new.journal.entries()) == 1
    assert (old / ".lab/journal.jsonl").is_file()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("substitute: [p0/t1_0", r"answers\.yaml:2:1"),
        ("subtitute: p0/t1_0", "did you mean substitute?"),
        ("stall: 3 RTT", "a prediction: testbed lab predict stall"),
        ("- a list", r"a mapping of keys to values\n.*lab start LAB --reset"),
        ("", r"found an empty file.*\n.*lab start LAB --reset"),
        ("\x01", r"found invalid YAML.*\n.*lab start LAB --reset"),
        ("awaited:3\nexplain: x", r"answers\.yaml:1: found awaited:3, expected a blank after"),
        ("awaited: 3\nawaited: 4", r"the key awaited a second time"),
        (
            'awaited: "3\nsubstitute: ""',
            r"answers\.yaml:2: found a quote that is not closed.*\n.*a line above",
        ),
        ("awaited 3\n\n# b\nexplain: x", r"answers\.yaml:1: .*\n.*write awaited: 3"),
        ("awaited= 3\nexplain: x", r"answers\.yaml:1: .*\n.*write awaited: 3"),
        ("awaited=3\nexplain=x", r"a mapping of keys to values\n.*write awaited: 3"),
        ("awaited: *4", "put it in quotes"),
        ("What was missing? (2 points)\nawaited: 3", "put # before it if it is a remark"),
        ("explain: > Loss", "a character that YAML reserves"),
        ("explain: >\nLoss was 3", "write the key, a colon and >, and its whole text below"),
        ("notes: x", "remove it, or put # before it"),
        ("explain: " + "the " * 70, "not the same few words again"),
        ("why-longer: e", "one of a, b, c, d"),
        ("awaited: many", "a number in PSN"),
        ("explain: too short", "60 words or more"),
        ("explain: flow #2 lost 12 packets", "not 1\n.*where # begins a remark: write > behind"),
        ("explain: in my run\n  flow #2 lost 12", "not 4\n.*where # begins a remark: write >"),
        ("explain: *bold* text", "a character that YAML reserves.*\n.*put it in quotes"),
        ("explain: - the stall", "a character that YAML reserves.*\n.*put it in quotes"),
        ("explain: !The text", "a value that begins with !.*\n.*put it in quotes"),
        ("explain: &The text", "a value that begins with &.*\n.*put it in quotes"),
        ("explain: >text", "a character that YAML reserves"),
    ],
)
def test_wrong_answers_files_are_one_clear_error(work: Work, text: str, message: str) -> None:
    work.answers.write_text(text + "\n")
    with pytest.raises(InputError, match=message):
        _check_all(work)


def test_a_text_that_is_a_remark_as_a_whole_is_no_answer_yet(work: Work) -> None:
    task = work.task("explain")
    for text, said in {"#2 of the paths was lost": True, "": False}.items():
        work.answers.write_text(f"explain: {text}\n\n# the next question\n")
        result = check(task, work.read_answers(), work.evidence())
        assert result.missing
        if said:
            assert result.reason.startswith("no answer yet: write it behind explain:")
            assert "Look: the text ends where # begins a remark: write >" in result.reason
        else:  # what comes first is the run
            assert result.reason == "it needs the run failure: testbed lab run failure"


def test_a_text_that_cannot_be_read_costs_no_other_answer(work: Work) -> None:
    work.answers.write_text("awaited: 3\nexplain: !The text\nsubstitute: [&a, p0/t1_1]\n")
    document = work.read_answers()
    assert parsed(document, work.task("awaited")) == 3
    for task, beginning in {"explain": "!", "substitute": "&"}.items():
        with pytest.raises(InputError, match=f"{task}.*found a value that begins with {beginning}"):
            parsed(document, work.task(task))


def test_an_answer_is_read_as_it_was_written() -> None:
    """And not as the number that YAML finds in it."""
    names = NamesAnswer(kind="names", of="uSIDs")
    for text in ("24e3", "0x24e3", '"24e3"', "[24e3]"):
        document = parse_document(None, f"usid: {text}", as_text=True)
        assert parse_answer(document.data["usid"], names) == ("24e3",)
    document = parse_document(None, "usid: 0203", as_text=True)
    assert parse_answer(document.data["usid"], names) == ("0203",)


def test_names_in_order_are_read_and_counted() -> None:
    states = NamesAnswer(kind="names", of="states", ordered=True)
    right = ("GOOD", "ASSUMED_BAD", "GOOD")
    for text in (
        "[GOOD, ASSUMED_BAD, GOOD]",
        "GOOD -> ASSUMED_BAD -> GOOD",
        "GOOD;ASSUMED_BAD;GOOD",
    ):
        document = parse_document(None, f"states: {text}", as_text=True)
        assert parse_answer(document.data["states"], states) == right
    for given, said in {
        ("GOOD", "ASSUMED_BAD"): "has 2 states; there are more",
        (*right, "ASSUMED_BAD"): "has 4 states; there are fewer",
        ("ASSUMED_BAD", "GOOD", "GOOD"): "their order is another",
    }.items():
        assert said in _names_difference(states, given, right)


def _check_all(work: Work) -> None:
    document = work.read_answers()
    for task in work.assignment.directory.lab.questions:
        check(task, document, work.evidence())


def test_a_name_without_numbers_is_not_taken_for_a_misspelt_one() -> None:
    document = Document(None, {})
    _refuse_misspelt("states", document, ("ASSUMED_BAD", "GOOD"), ("GOOD", "ASSUMED_BAD"))
    with pytest.raises(InputError, match=r"did you mean GOOD\?"):
        _refuse_misspelt("states", document, ("good",), ("GOOD", "ASSUMED_BAD"))
    with pytest.raises(InputError, match=r"did you mean p2/t1_3\?"):
        _refuse_misspelt("path", document, ("p2_t1_3",), ("p0/t1_1",))


def test_a_number_of_a_name_is_not_quoted() -> None:
    text = "h0 over p0_t1_2--p0_t0_1, T0, t0_0, p0/t1_2 and IPv6: 16 of 1,234, x4, 2.5RTT, h1,7"
    assert _numbers_in(text) == [16, 1234, 4, 2.5, 7]


def test_a_figure_below_zero_is_quoted_without_its_sign(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Evidence, "value", lambda *_: -4.2)
    for text in ("It is 4.2 RTT less.", "It is -4.2 RTT."):
        assert _unquoted(work.task("explain"), text, work.evidence()) == ""


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        *(("after 1,28 RTT", "1.28"), ("after 1,285 RTT", "1.285"), ("4,5, 6 or 1,3", "1.3")),
        *(("the EVs 4,5 and 6", ""), ("it took 7,9 RTT", ""), ("h1,28", "")),
    ],
)
def test_a_figure_with_a_decimal_comma_is_told_to_have_a_point(
    work: Work, monkeypatch: pytest.MonkeyPatch, text: str, meant: str
) -> None:
    monkeypatch.setattr(Evidence, "value", lambda *_: 1.285)
    said = _unquoted(work.task("explain"), text, work.evidence())
    assert said.startswith("The text does not quote the figure ")
    assert said.endswith(
        f" Write {meant}, with a decimal point." if meant else " of your run failure."
    )


@pytest.mark.parametrize(
    ("number", "value", "is_quoted"),
    [
        *((0, 16, False), (0, 49_999, False), (0, 0.04, False), (0, 0, True)),
        *((1, 1040, False), (1234, 1234, True), (1.2, 1234, False), (1.23, 1234, True)),
        *((25.3, 0.2532, True), (0.3, 0.26, True), (0.06, 0.0583, True), (12.2, 12.24, True)),
    ],
)
def test_a_rounded_figure_is_quoted_and_a_zero_is_none(
    number: float, value: float, is_quoted: bool
) -> None:
    assert _quotes(number, value) == is_quoted
