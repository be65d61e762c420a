"""Grades one submission in a process of its own: a request on stdin, the grade on stdout."""

import json
import sys
from pathlib import Path

from testbed.studies.labs.grading.grade import grade
from testbed.studies.labs.grading.limits import limit_this_process


def main() -> None:
    """Read the request, limit this process, grade, and write the grade as JSON."""
    request = json.load(sys.stdin)
    if sys.platform != "win32":
        limit_this_process(request["slowness"])
    key = request["course_key"]
    graded = grade(
        Path(request["archive"]),
        Path(request["labs"]),
        None if key is None else bytes.fromhex(key),
        Path(request["scratch"]),
        request["slowness"],
        request["lab"],
    )
    sys.stdout.write(graded.model_dump_json())


if __name__ == "__main__":
    main()
