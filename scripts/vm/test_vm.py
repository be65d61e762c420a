"""Test the testbed on a system's own kernel, in a virtual machine that is made for it (root).

What it does:

1. It makes a root file system from the system's packages. They are only unpacked: no program of
   theirs runs here, so another architecture needs nothing of this machine's kernel, and no service
   starts. The Python packages of uv.lock are added as `.venv`, for that system's Python. The image
   stays in the directory for the next time, until its recipe or uv.lock changes.
2. It boots the image with the kernel that came with it, and with this checkout on a second disk.
   The image itself is not written to. Hardware acceleration is tried for a minute, else QEMU
   translates, which is about 15 times slower.
3. `guest.sh` runs in the machine: doctor, the tests marked `kernel`, and link-failure.

Exit status: 0 if all of it passed, 1 if not, 3 if this machine lacks a program.
"""

import argparse
import json
import os
import platform
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from system_image import ROOT, SUITES, fail, make_checkout, make_image, recipe, say

BOOTED = "test-vm: booted"
"""What guest.sh prints first; by it an acceleration that works is known."""

TERMINAL_CODES = re.compile(r"\x1b(c|\[[?\d;]*[A-Za-z])")
"""What the firmware writes to clear a screen."""

LAST_STEPS = ("without-ipv6", "command")
"""Of guest.sh."""

ACCELERATION_TRIAL_S = 60
LONGEST_CPU_S = 40 * 60
"""A boot that takes more CPU time hangs; waiting for the CPU of a busy machine does not count."""
LONGEST_S = 6 * 60 * 60
"""A machine that waits for ever takes no CPU time."""

ACCELERATED = ("-accel", "kvm", "-cpu", "host", "-smp", "2")
COUNTED = ("-accel", "tcg", "-icount", "shift=0,sleep=off", "-rtc", "clock=vm")
"""Without acceleration. The clock of the machine counts the instructions of its one CPU, 1 ns each,
and jumps to the next event where the CPU is idle. So the machine is never late in its own time,
however slow or busy this one is. But a wait for the disk takes long in that time: guest.sh reads
all files first, and runs write to memory."""

OPTIONS = ("", "ipv6.disable=1")
"""Of the kernel: for the tests, and for what guest.sh does without IPv6."""

MEMORY_MIB = 4096
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
PROGRAMS = {
    "mmdebstrap": "mmdebstrap",
    "depmod": "kmod",
    "cpio": "cpio",
    "mke2fs": "e2fsprogs",
    "unshare": "util-linux",
}


@dataclass(frozen=True, slots=True)
class Architecture:
    """What QEMU needs to know of an architecture.

    Attributes:
        machine: its name for the kernel, QEMU and Python packages.
        package: Debian's package of the emulator.
        options: the machine to emulate.
        cpu: the processor, where it is translated.
        console: the serial line.
    """

    machine: str
    package: str
    options: tuple[str, ...]
    cpu: str
    console: str


ARCHITECTURES = {
    # Without AVX, which QEMU 7.2 gets wrong in one instruction, and without ERMS: the kernel
    # copies by words then, while QEMU translates a `rep movsb` byte by byte.
    "amd64": Architecture(
        "x86_64", "qemu-system-x86", ("-machine", "q35"), "Westmere,-pcid,-erms", "ttyS0"
    ),
    "arm64": Architecture(
        "aarch64", "qemu-system-arm", ("-machine", "virt"), "cortex-a72", "ttyAMA0"
    ),
}


def main() -> int:
    """Make the image if there is none, boot it, and print what passed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("system", choices=SUITES)
    parser.add_argument("arch", choices=ARCHITECTURES)
    parser.add_argument("--directory", type=Path, default=ROOT / ".setup/vm", help="for images")
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="for what is found")
    parser.add_argument("--only-image", action="store_true", help="make the image, boot nothing")
    parser.add_argument("--command", help="run this in the machine instead of the tests")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the machine ends, too
    arch = ARCHITECTURES[arguments.arch]
    require_programs(arch)
    name = f"{arguments.system}-{arguments.arch}"
    results = arguments.results.absolute() / f"vm-{name}"
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    if arguments.command:
        (results / "command").write_text(arguments.command, encoding="utf-8")

    image = arguments.directory.absolute() / f"{name}-{recipe()}"
    if not (image / "complete").exists():
        begin = time.monotonic()
        shutil.rmtree(image, ignore_errors=True)
        for old in image.parent.glob(f"{name}-*"):
            shutil.rmtree(old)
        image.mkdir(parents=True)
        make_image(image, SUITES[arguments.system], arguments.arch)
        (image / "complete").touch()
        say(f"made {image} in {time.monotonic() - begin:.0f} s")
    if arguments.only_image:
        return 0
    with tempfile.TemporaryDirectory(prefix="test-vm-") as scratch:
        checkout = Path(scratch, "checkout.ext4")
        make_checkout(checkout)
        machine = Machine(arch, image, checkout, results)
        before_s = used_cpu_s()
        accelerated, seconds = boot(machine, OPTIONS[:1] if arguments.command else OPTIONS)
    return report(name, results, seconds, used_cpu_s() - before_s, accelerated=accelerated)


def require_programs(arch: Architecture) -> None:
    """End with what to install if a program is missing, or if this is not root."""
    programs = {**PROGRAMS, f"qemu-system-{arch.machine}": arch.package}
    missing = sorted({package for name, package in programs.items() if shutil.which(name) is None})
    if not KEYRING.exists():  # on Ubuntu
        missing.append("debian-archive-keyring")
    if missing:
        fail(f"missing programs: apt-get install --no-install-recommends {' '.join(missing)}")
    if os.geteuid() != 0:
        fail("the files of an image belong to root: run it as root, such as with sudo")


# ---- the machine ---------------------------------------------------------------------------------


def boot(machine: "Machine", options: Sequence[str]) -> tuple[bool, float]:
    """Boot once with each of the kernel's options.

    Returns whether it was accelerated, and the seconds it took.
    """
    begin = time.monotonic()
    how: Sequence[str] = (*COUNTED, "-cpu", machine.arch.cpu)
    accelerated = False
    if platform.machine() == machine.arch.machine and os.access("/dev/kvm", os.R_OK | os.W_OK):
        say(f"trying acceleration, for at most {ACCELERATION_TRIAL_S} s")
        if machine.run(ACCELERATED, options[0], ACCELERATION_TRIAL_S):
            accelerated, how, options = True, ACCELERATED, options[1:]
        else:
            say("acceleration does not work here")
            begin = time.monotonic()
    for option in options:
        machine.run(how, option, LONGEST_S)
    return accelerated, time.monotonic() - begin


@dataclass(frozen=True, slots=True)
class Machine:
    """A virtual machine.

    Attributes:
        arch: its architecture.
        image: directory of its system's image.
        checkout: its second disk.
        results: the directory that it writes to.
    """

    arch: Architecture
    image: Path
    checkout: Path
    results: Path

    def run(self, acceleration: Sequence[str], option: str, boot_s: float) -> bool:
        """Run it until it switches off; returns whether it booted within a time."""
        arguments = self._arguments(acceleration, option)
        with (self.results / "qemu.txt").open("a", encoding="utf-8") as file:
            file.write(shlex.join(arguments) + "\n")
        console = self.results / f"console{option and '-'}{option}.log"
        with (
            console.open("wb") as output,
            running(arguments, output) as process,
            console.open("r", encoding="utf-8", errors="replace") as log,
        ):
            begin, booted = time.monotonic(), False
            while True:
                ended = process.poll() is not None
                print(TERMINAL_CODES.sub("", log.read()), end="", flush=True)
                booted = booted or BOOTED in console.read_text(errors="replace", encoding="utf-8")
                passed = time.monotonic() - begin
                hangs = passed > LONGEST_S or (not ended and cpu_s(process.pid) > LONGEST_CPU_S)
                if ended or hangs or (passed > boot_s and not booted):
                    return booted
                time.sleep(0.5)

    def _arguments(self, acceleration: Sequence[str], option: str) -> list[str]:
        disks = [
            option
            for disk in (self.image / "system.ext4", self.checkout)
            for option in ("-drive", f"file={disk},format=raw,if=virtio,snapshot=on")
        ]
        return [
            f"qemu-system-{self.arch.machine}", *self.arch.options, *acceleration,
            "-m", str(MEMORY_MIB), "-nodefaults", "-no-reboot", "-nographic",
            "-serial", "stdio", "-device", "virtio-rng-pci", *disks,
            "-virtfs", f"local,path={self.results},mount_tag=results,security_model=none",
            "-kernel", str(self.image / "vmlinuz"), "-initrd", str(self.image / "initrd"),
            "-append", f"console={self.arch.console} quiet panic=-1 mitigations=off {option}",
        ]  # fmt: skip


def cpu_s(process: int) -> float:
    """CPU time that a process has taken: fields 14 and 15 of proc(5)'s stat."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def used_cpu_s() -> float:
    """CPU time of the processes that have ended; on a busy machine it is less than what passed."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def running(arguments: Sequence[str], output: BinaryIO) -> "Iterator[subprocess.Popen[bytes]]":
    """A process that ends with the block."""
    process = subprocess.Popen(
        arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def report(name: str, results: Path, seconds: float, used_s: float, *, accelerated: bool) -> int:
    """Print what the machine found, and return the exit status."""
    steps = results / "steps.jsonl"
    lines = steps.read_text(encoding="utf-8").splitlines() if steps.exists() else []
    found = [json.loads(line) for line in lines]
    for step in found:
        say(f"{step['name']}: {'passed' if step['status'] == 0 else 'FAILED'}, {step['seconds']} s")
    complete = bool(found) and found[-1]["name"] in LAST_STEPS
    passed = complete and all(step["status"] == 0 for step in found)
    how = "accelerated" if accelerated else "translated"
    say(
        f"{name} ({how}): {'passed' if passed else 'FAILED'} in {seconds / 60:.1f} min, "
        f"{used_s / 60:.1f} min of a CPU; {results}"
    )
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
