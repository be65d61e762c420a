"""Where a student stands in a lab, and the command that comes next."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.studies.labs.lab import Task
    from testbed.studies.labs.work import Work


def is_done(work: "Work", task: "Task") -> bool:
    """Whether a task is done, with the runs and the code as they are now."""
    return work.passed(task) and not work.is_out_of_date(task)


def state(work: "Work", task: "Task") -> str:
    """What has become of a task, in a word or two."""
    if work.passed(task) and work.is_out_of_date(task):
        due = [run for run in task.after if work.counted_run(run) is None]
        return f"run {due[0]} again" if due else "check again"
    if work.passed(task):
        return "predicted" if task.is_prediction else "done"
    return "wrong" if work.last("attempt", task=task.id) else "open"


def next_step(work: "Work") -> str:
    """The command that comes next: tasks in order, each prediction before its run."""
    for task in work.tasks:
        if task.is_prediction:
            if work.made_run(task.before) is not None:
                continue
            return _next_before(work, task.before)
        if is_done(work, task):
            continue
        missing = next((name for name in task.after if work.counted_run(name) is None), None)
        if missing is not None:
            return _next_before(work, missing)
        if work.is_out_of_date(task):
            return f"testbed lab check {task.id}"
        if task.is_score:
            return _next_for_score(work, task)
        return f"write {task.id} in answers.yaml, then: testbed lab check {task.id}"
    return "testbed lab submit"


def _next_before(work: "Work", run: str) -> str:
    """What comes next before a run was made: its predictions, then the run."""
    for task in work.assignment.directory.lab.predictions(run):
        if not work.passed(task):
            return f"testbed lab predict {task.id}"
    return f"testbed lab run {run}"


def _next_for_score(work: "Work", task: "Task") -> str:
    """What comes next where the student's code is judged."""
    lab = work.assignment.directory.lab
    files = sorted({file for run in task.after for file in lab.runs[run].code_files})
    if work.last("attempt", task=task.id) is None:
        return f"testbed lab check {task.id}"
    steps = (f"testbed lab run {run}" for run in task.after)
    return f"change {', '.join(files)}, {', '.join(steps)}, then: testbed lab check {task.id}"
