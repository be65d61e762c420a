"""The archive that Gradescope runs: `setup.sh`, `run_autograder`, the wheel and the course key."""

import zipfile
from pathlib import Path

from testbed.model.errors import InputError

PYTHON = ">=3.11,<3.15"
"""Which Python the wheel needs; Ubuntu 22.04, Gradescope's usual image, has 3.10."""

SETUP = f"""#!/bin/sh
# Installs the testbed where run_autograder finds it, with the image's Python or else a newer one.
set -e
apt-get update && apt-get install -y --no-install-recommends python3-venv
python3 -m venv /autograder/uv
/autograder/uv/bin/pip install --quiet uv
export UV_PYTHON_INSTALL_DIR=/autograder/python # every user can read it, as students' code has to
/autograder/uv/bin/uv venv --quiet --python "{PYTHON}" /autograder/venv
/autograder/uv/bin/uv pip install --quiet --python /autograder/venv /autograder/source/*.whl
"""

RUN = """#!/bin/sh
# Grades the submission; a failing grade ends with status 0, as Gradescope wants it.
cd /autograder || exit 1
mkdir -p results
set -- submission --lab {lab} {key}--gradescope results/results.json
[ ! -e submission_metadata.json ] || set -- "$@" --metadata submission_metadata.json
/autograder/venv/bin/testbed lab grade "$@" || true
test -e results/results.json
"""

_COURSE_KEY = "course.key"
_EXECUTABLE = 0o755 << 16


def write_autograder(path: Path, lab: str, wheel: Path, course_key: bytes | None) -> None:
    """Write the archive.

    Args:
        path: the file to write.
        lab: the name of the lab that it grades; submissions of other labs are refused.
        wheel: the testbed's wheel.
        course_key: the course's; None: keys in submissions are believed.

    Raises:
        InputError: there is no such wheel.
    """
    if wheel.suffix != ".whl" or not wheel.is_file():
        remedy = "pip wheel --no-deps . in a checkout makes it"
        raise InputError.of("--wheel", str(wheel), "the file of a wheel", remedy)
    key = "" if course_key is None else f"--course-key source/{_COURSE_KEY} "
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in (("setup.sh", SETUP), ("run_autograder", RUN.format(lab=lab, key=key))):
            entry = zipfile.ZipInfo(name)
            entry.external_attr = _EXECUTABLE
            archive.writestr(entry, text)
        archive.write(wheel, wheel.name)
        if course_key is not None:
            archive.writestr(_COURSE_KEY, course_key)
