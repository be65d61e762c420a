#!/usr/bin/env python3
"""Compare our declarations of OCP's MRC interfaces with a checkout of them.

    scripts/ocp_abi.py CHECKOUT

CHECKOUT is a directory with mrc.h and mrc_ctl.h, from
https://github.com/opencomputeproject/OCP-Multipath-Reliable-Connection. The C compiler computes
every size, offset and value of testbed/device/c/mrc_abi.h twice, with ours and with theirs; and
each function of theirs must be one that testbed/device/c/mrc.c or mrc_ctl.c exports. This needs a
C compiler and libibverbs-dev. Nothing of the checkout is kept.

Exit status: 0 they agree, 1 they do not, 2 there is no such checkout or no compiler.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

OURS = Path(__file__).resolve().parent.parent / "testbed/device/c"
HEADERS = ("mrc.h", "mrc_ctl.h")
VERSION = re.compile(
    r"#define MRC(?:_CTL)?_API_CURRENT_VERSION\s+MRC\w*_VER\((\d+), (\d+), (\d+)\)"
)
EXPORTED = re.compile(r"\bEXPORT [\w ]+?\**(mrc_\w+)\(")
DECLARED = re.compile(r"^[\w ]+?\s\**(mrc_\w+)\(", re.MULTILINE)


def places(text: str) -> list[str]:
    """Everything to measure: `sizeof`, `offsetof` and constants, as C expressions."""
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    found = []
    for name, body in re.findall(r"^struct (\w+) \{(.*?)^\};", code, re.DOTALL | re.MULTILINE):
        found.append(f"sizeof(struct {name})")
        for field in fields(body):
            found.append(f"offsetof(struct {name}, {field})")
            found.append(f"sizeof(((struct {name} *)0)->{field})")
    bodies = " ".join(re.findall(r"enum \{(.*?)\};", code, re.DOTALL))
    return found + [f"(unsigned){name}" for name in re.findall(r"\bMRC_\w+", bodies)]


def fields(body: str) -> list[str]:
    """The fields of a structure; those of a structure within it by `outer.inner`."""
    found, starts = list[str](), list[int]()
    for line in body.splitlines():
        if re.search(r"(struct|union) \{$", line):
            starts.append(len(found))
        elif closing := re.match(r"\s*\} (\w+);", line):
            first = starts.pop()
            found[first:] = [closing[1], *(f"{closing[1]}.{name}" for name in found[first:])]
        elif declared := re.search(r"(\w+)(?:\[\w+\])?;\s*$", line):
            found.append(declared[1])
    return found


def measured(compiler: str, expressions: list[str], include: list[str], *paths: str) -> list[str]:
    """What the compiler says that each expression is, with these headers."""
    lines = "".join(f'printf("%lu\\n", (unsigned long)({each}));' for each in expressions)
    headers = "".join(f"#include <{name}>\n" for name in ("stdio.h", "stddef.h", *include))
    with TemporaryDirectory() as directory:
        program = Path(directory, "measure")
        source = program.with_suffix(".c")
        source.write_text(f"{headers}int main(void) {{ {lines} return 0; }}\n", encoding="utf-8")
        options = [f"-I{path}" for path in paths]
        done = subprocess.run(
            [compiler, "-w", *options, str(source), "-o", str(program)],
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        if done.returncode:
            fail(f"the compiler refuses {', '.join(include)}:\n{done.stderr.strip()}")
        return subprocess.run(
            [program], capture_output=True, encoding="utf-8", check=True
        ).stdout.split()


def fail(message: str) -> NoReturn:
    """End with a message and exit status 2."""
    print(message, file=sys.stderr)
    raise SystemExit(2)


def main() -> int:
    """Compare; returns the exit status."""
    match sys.argv[1:]:
        case [name] if not name.startswith("-"):
            checkout = Path(name)
        case _:
            fail(__doc__ or "")
    missing = [name for name in HEADERS if not (checkout / name).is_file()]
    if missing:
        fail(f"{checkout}: expected a checkout with {' and '.join(HEADERS)}; no {missing[0]} there")
    compiler = shutil.which("cc")
    if compiler is None:
        fail("there is no C compiler: apt install gcc libc6-dev")
    expressions = places((OURS / "mrc_abi.h").read_text(encoding="utf-8"))
    ours = measured(compiler, expressions, ["mrc_abi.h"], str(OURS))
    theirs = measured(compiler, expressions, list(HEADERS), str(checkout))
    wrong = [
        f"{name}: {mine} here, {other} there"
        for name, mine, other in zip(expressions, ours, theirs, strict=True)
        if mine != other
    ]
    code = "".join((OURS / name).read_text(encoding="utf-8") for name in ("mrc.c", "mrc_ctl.c"))
    text = "".join((checkout / name).read_text(encoding="utf-8") for name in HEADERS)
    declared = set(DECLARED.findall(text))
    wrong += [f"{name}() is missing here" for name in sorted(declared - {*EXPORTED.findall(code)})]
    print("\n".join(wrong))
    versions = (checkout / name for name in ("mrc_api_ver.h", "mrc_ctl_api_ver.h"))
    found = [VERSION.search(file.read_text(encoding="utf-8")) for file in versions if file.exists()]
    names = ", ".join(".".join(match.groups()) for match in found if match)
    compared = f"{len(expressions)} sizes, offsets and values, {len(declared)} functions"
    print(f"{compared}; their version {names or 'unknown'}: {len(wrong)} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
