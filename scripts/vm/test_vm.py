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
import hashlib
import json
import lzma
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
MIRROR = "http://deb.debian.org/debian"
SUITES = {"debian12": "bookworm", "debian13": "trixie", "newest": "forky"}
"""Debian's releases. `newest` is the one in preparation: the newest kernel and Python there are."""

PACKAGES = (
    *("base-files", "base-passwd", "bash", "busybox-static", "coreutils", "dash", "findutils"),
    *("gawk", "grep", "gzip", "hostname", "kmod", "libc-bin", "mount", "procps", "sed", "tar"),
    "util-linux",
    *(
        "iproute2",
        "iputils-ping",
        "libbpf1",
        "libstdc++6",
        "openvswitch-switch",
        "python3",
        "python3-venv",
    ),
)
BOOT_MODULES = ("virtio_pci", "virtio_blk", "ext4")
BOOTED = "test-vm: booted"
"""What guest.sh prints first; by it an acceleration that works is known."""

TESTBED = "#!/opt/venv/bin/python\nfrom testbed.__main__ import main\n\nmain()\n"
"""What an installation would put into `bin` of the virtual environment."""

TERMINAL_CODES = re.compile(r"\x1b(c|\[[?\d;]*[A-Za-z])")
"""What the firmware writes to clear a screen."""

LAST_STEPS = ("link-failure", "command")
"""Of guest.sh."""

ACCELERATION_TRIAL_S = 60
LONGEST_S = 40 * 60
CPUS = 2
MEMORY_MIB = 3072
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
    "amd64": Architecture("x86_64", "qemu-system-x86", ("-machine", "q35"), "max", "ttyS0"),
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
    parser.add_argument("--command", help="run this in the machine instead of the tests")
    arguments = parser.parse_args()
    arch = ARCHITECTURES[arguments.arch]
    require_programs(arch)
    name = f"{arguments.system}-{arguments.arch}"
    results = arguments.results.absolute() / f"vm-{name}"
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    if arguments.command:
        (results / "command").write_text(arguments.command)

    image = arguments.directory.absolute() / f"{name}-{recipe(arguments.system, arguments.arch)}"
    if not (image / "complete").exists():
        begin = time.monotonic()
        shutil.rmtree(image, ignore_errors=True)
        for old in image.parent.glob(f"{name}-*"):
            shutil.rmtree(old)
        image.mkdir(parents=True)
        make_image(image, SUITES[arguments.system], arguments.arch)
        (image / "complete").touch()
        say(f"made {image} in {time.monotonic() - begin:.0f} s")
    with tempfile.TemporaryDirectory(prefix="test-vm-") as scratch:
        checkout = Path(scratch, "checkout.ext4")
        make_checkout(checkout)
        accelerated, seconds = boot(arch, image, checkout, results)
    return report(name, results, seconds, accelerated=accelerated)


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


def recipe(system: str, arch: str) -> str:
    """A digest of what an image is made of."""
    parts = [SUITES[system], arch, *PACKAGES, *BOOT_MODULES]
    files = [Path(__file__), HERE / "init.sh", ROOT / "uv.lock"]
    content = "\n".join(parts).encode() + b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(content).hexdigest()[:12]


# ---- the image -----------------------------------------------------------------------------------


def make_image(image: Path, suite: str, arch: str) -> None:
    """Make root file system, kernel and initial RAM disk."""
    root = image / "root"
    say(f"unpacking {suite} for {arch}")
    kernel_package = f"linux-image-{arch}"
    # A mirror may lag behind, and its Release file expire; its signature is checked all the same.
    command("mmdebstrap", "--quiet", "--variant=extract", f"--arch={arch}",
            '--aptopt=Acquire::Check-Valid-Until "false"',
            f"--include={','.join((*PACKAGES, kernel_package))}", suite, root, MIRROR)  # fmt: skip
    complete_packages(root)
    release = next((root / "lib/modules").iterdir()).name
    command("depmod", "-b", root, release)
    places = (root / f"boot/vmlinuz-{release}", root / f"lib/modules/{release}/vmlinuz")
    shutil.copy(next(place for place in places if place.exists()), image / "vmlinuz")
    make_initrd(root, release, image / "initrd")
    install_python_packages(root, arch)
    shutil.rmtree(root / "usr/share/doc")
    make_disk(root, image / "system.ext4")
    shutil.rmtree(root)


def complete_packages(root: Path) -> None:
    """Do what the installation scripts of packages would do, as far as it is needed here."""
    for name in ("passwd", "group"):
        shutil.copy(root / f"usr/share/base-passwd/{name}.master", root / f"etc/{name}")
    switch = root / "usr/sbin/ovs-vswitchd"
    if not switch.exists():  # one of Debian's alternatives
        switch.symlink_to("/usr/lib/openvswitch-switch/ovs-vswitchd")
    (root / "etc/hostname").write_text("test-vm\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost test-vm\n::1 localhost\n")
    (root / "mrc-testbed").mkdir()
    shutil.copy(HERE / "init.sh", root / "init.sh")


def make_initrd(root: Path, release: str, initrd: Path) -> None:
    """Make the initial RAM disk: a shell, and the modules with which the disk is read."""
    with tempfile.TemporaryDirectory(prefix="initrd-") as scratch:
        tree = Path(scratch)
        for directory in ("bin", "modules", "newroot", "dev"):
            (tree / directory).mkdir()
        shutil.copy(next(root.glob("**/bin/busybox")), tree / "bin/busybox")
        loaded = []
        for path in boot_modules(root, release):
            content = path.read_bytes()
            name = path.name.removesuffix(".xz")
            (tree / "modules" / name).write_bytes(
                content if name == path.name else lzma.decompress(content)
            )
            loaded.append(f"/modules/{name}")
        (tree / "init").write_text(
            "#!/bin/busybox sh\n"
            f"for module in {' '.join(loaded)}; do /bin/busybox insmod $module; done\n"
            "/bin/busybox mount -t devtmpfs devtmpfs /dev\n"
            "/bin/busybox mount -o ro -t ext4 /dev/vda /newroot || /bin/busybox poweroff -f\n"
            "exec /bin/busybox switch_root /newroot /bin/bash /init.sh\n"
        )
        (tree / "init").chmod(0o755)
        names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
        with initrd.open("wb") as file:
            subprocess.run(
                ["cpio", "--quiet", "-o", "-H", "newc"],
                input=names.encode(),
                stdout=file,
                cwd=tree,
                check=True,
            )


def boot_modules(root: Path, release: str) -> list[Path]:
    """The modules with which the disk is read, in the order in which they are loaded."""
    shown = ""
    for module in BOOT_MODULES:
        shown += command("modprobe", "-d", root, "-S", release, "--show-depends", module)
    lines = [line.split() for line in shown.splitlines()]
    return [Path(line[1]) for line in dict.fromkeys(map(tuple, lines)) if line[0] == "insmod"]


def install_python_packages(root: Path, arch: str) -> None:
    """Add the packages of uv.lock as a virtual environment of that system's Python."""
    python = (root / "usr/bin/python3").readlink().name
    version = python.removeprefix("python")
    venv = root / "opt/venv"
    packages = venv / "lib" / python / "site-packages"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/python").symlink_to("/usr/bin/python3")
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    (venv / "bin/testbed").write_text(TESTBED)
    (venv / "bin/testbed").chmod(0o755)
    say(f"installing the packages of uv.lock for Python {version}")
    uv = shutil.which("uv") or str(ROOT / ".setup/uv/bin/uv")
    with tempfile.TemporaryDirectory(prefix="packages-") as scratch:
        requirements, constraints = Path(scratch, "requirements"), Path(scratch, "constraints")
        command(uv, "export", "--quiet", "--frozen", "--all-extras", "--no-emit-project",
                "--output-file", requirements, cwd=ROOT)  # fmt: skip
        constraints.write_text("setuptools<68\n")
        command(uv, "pip", "install", "--quiet", "--target", packages, "--python-version", version,
                "--python-platform", f"{ARCHITECTURES[arch].machine}-manylinux_2_28",
                "--build-constraints", constraints, "--requirements", requirements)  # fmt: skip
    (packages / "checkout.pth").write_text("/mrc-testbed\n")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    metadata = packages / f"mrc_testbed-{project['version']}.dist-info/METADATA"
    metadata.parent.mkdir()
    metadata.write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )


def make_checkout(disk: Path) -> None:
    """Put the files of this checkout, and the link model that was built here, on a disk."""
    with tempfile.TemporaryDirectory(prefix="checkout-") as scratch:
        listed = command(
            "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT
        )
        built = [str(path.relative_to(ROOT)) for path in ROOT.glob("testbed/**/*.bpf.o")]
        for name in {*filter(None, listed.split("\0")), *built}:
            if (ROOT / name).is_file():
                place = Path(scratch, name)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, place)
        Path(scratch, ".venv").symlink_to("/opt/venv")
        make_disk(Path(scratch), disk)


def make_disk(tree: Path, disk: Path) -> None:
    """Make an ext4 file system of a directory, with room for as much again and 1 GiB."""
    used = int(command("du", "-s", "--block-size=1M", tree).split()[0])
    command("mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-d", tree, disk,
            f"{used + 1024}M")  # fmt: skip


# ---- the machine ---------------------------------------------------------------------------------


def boot(arch: Architecture, image: Path, checkout: Path, results: Path) -> tuple[bool, float]:
    """Run the machine to its end; returns whether it was accelerated, and the seconds it took."""
    if platform.machine() == arch.machine and os.access("/dev/kvm", os.R_OK | os.W_OK):
        say(f"trying acceleration, for at most {ACCELERATION_TRIAL_S} s")
        begin = time.monotonic()
        accelerated = ("-accel", "kvm", "-cpu", "host")
        if run_machine(arch, image, checkout, results, accelerated, ACCELERATION_TRIAL_S):
            return True, time.monotonic() - begin
        say("acceleration does not work here")
    begin = time.monotonic()
    translated = ("-accel", "tcg,thread=multi", "-cpu", arch.cpu)
    run_machine(arch, image, checkout, results, translated, LONGEST_S)
    return False, time.monotonic() - begin


def run_machine(
    arch: Architecture,
    image: Path,
    checkout: Path,
    results: Path,
    acceleration: Sequence[str],
    boot_s: float,
) -> bool:
    """Run QEMU until the machine switches off; returns whether it booted within a time."""
    disks = [
        option
        for disk in (image / "system.ext4", checkout)
        for option in ("-drive", f"file={disk},format=raw,if=virtio,snapshot=on")
    ]
    arguments = [
        f"qemu-system-{arch.machine}", *arch.options, *acceleration,
        "-smp", str(CPUS), "-m", str(MEMORY_MIB), "-nodefaults", "-no-reboot", "-nographic",
        "-serial", "stdio", "-device", "virtio-rng-pci", *disks,
        "-virtfs", f"local,path={results},mount_tag=results,security_model=none",
        "-kernel", str(image / "vmlinuz"), "-initrd", str(image / "initrd"),
        "-append", f"console={arch.console} quiet panic=-1",
    ]  # fmt: skip
    (results / "qemu.txt").write_text(shlex.join(arguments) + "\n")
    console = results / "console.log"
    with (
        console.open("wb") as output,
        running(arguments, output) as process,
        console.open("r", encoding="utf-8", errors="replace") as log,
    ):
        begin, booted = time.monotonic(), False
        while True:
            ended = process.poll() is not None
            print(TERMINAL_CODES.sub("", log.read()), end="", flush=True)
            booted = booted or BOOTED in console.read_text(errors="replace")
            passed = time.monotonic() - begin
            if ended or passed > LONGEST_S or (passed > boot_s and not booted):
                return booted
            time.sleep(0.5)


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


def report(name: str, results: Path, seconds: float, *, accelerated: bool) -> int:
    """Print what the machine found, and return the exit status."""
    steps = results / "steps.jsonl"
    lines = steps.read_text().splitlines() if steps.exists() else []
    found = [json.loads(line) for line in lines]
    for step in found:
        say(f"{step['name']}: {'passed' if step['status'] == 0 else 'FAILED'}, {step['seconds']} s")
    complete = bool(found) and found[-1]["name"] in LAST_STEPS
    passed = complete and all(step["status"] == 0 for step in found)
    how = "accelerated" if accelerated else "translated"
    say(f"{name} ({how}): {'passed' if passed else 'FAILED'} in {seconds / 60:.1f} min; {results}")
    return 0 if passed else 1


def command(*arguments: str | Path, cwd: Path | None = None) -> str:
    """Run a program and return its output; its failure ends this one."""
    ended = subprocess.run(
        [str(argument) for argument in arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        cwd=cwd,
        check=False,
    )
    if ended.returncode != 0:
        fail(f"{arguments[0]} failed with exit status {ended.returncode}", 1)
    return ended.stdout


def say(text: str) -> None:
    """Print a line about the progress."""
    print(f"test-vm: {text}", flush=True)


def fail(text: str, status: int = 3) -> None:
    """End with a message."""
    say(text)
    sys.exit(status)


if __name__ == "__main__":
    sys.exit(main())
