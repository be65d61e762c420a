"""Root file system, kernel and initial RAM disk of another system, from its packages.

The packages are only unpacked: no program of theirs runs here, so another architecture needs
nothing of this machine's kernel, and no service starts.
"""

import hashlib
import lzma
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MIRROR = "http://deb.debian.org/debian"
SUITES = {"debian12": "bookworm", "debian13": "trixie", "newest": "forky"}
"""Debian's releases. `newest` is the one in preparation: the newest kernel and Python there are."""

MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""What kernel, QEMU and Python packages call Debian's architectures."""

PACKAGES = (
    *("base-files", "base-passwd", "bash", "busybox-static", "coreutils", "dash", "findutils"),
    *("gawk", "grep", "gzip", "hostname", "iproute2", "iptables", "iputils-ping", "kmod"),
    *("libbpf1", "libc-bin", "libstdc++6", "mount", "openvswitch-switch", "procps", "python3"),
    *("python3-venv", "sed", "tar", "util-linux"),
)
INIT = """\
mount -t proc proc /proc
mount -t devtmpfs devtmpfs /dev
mount -t ext4 /dev/vdb /mrc-testbed
exec bash /mrc-testbed/scripts/vm/init.sh
"""
"""The first program of the machine; the checkout has the rest."""

BOOT_MODULES = ("virtio_pci", "virtio_blk", "ext4")
TESTBED = "#!/opt/venv/bin/python\nfrom testbed.__main__ import main\n\nmain()\n"
"""What an installation would put into `bin` of the virtual environment."""


def recipe() -> str:
    """A digest of what images are made by."""
    files = (Path(__file__), ROOT / "uv.lock")
    content = b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(content).hexdigest()[:12]


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
    (root / "etc/hostname").write_text("test-vm\n", encoding="utf-8")
    (root / "etc/hosts").write_text(
        "127.0.0.1 localhost test-vm\n::1 localhost\n", encoding="utf-8"
    )
    (root / "mrc-testbed").mkdir()
    (root / "etc/test-vm").touch()
    (root / "init.sh").write_text(INIT, encoding="utf-8")


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
            "exec /bin/busybox switch_root /newroot /bin/bash /init.sh\n",
            encoding="utf-8",
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
    (venv / "pyvenv.cfg").write_text(
        "home = /usr/bin\ninclude-system-site-packages = false\n", encoding="utf-8"
    )
    (venv / "bin/testbed").write_text(TESTBED, encoding="utf-8")
    (venv / "bin/testbed").chmod(0o755)
    say(f"installing the packages of uv.lock for Python {version}")
    uv = shutil.which("uv") or str(ROOT / ".setup/uv/bin/uv")
    with tempfile.TemporaryDirectory(prefix="packages-") as scratch:
        requirements, constraints = Path(scratch, "requirements"), Path(scratch, "constraints")
        command(uv, "export", "--quiet", "--frozen", "--all-extras", "--no-emit-project",
                "--no-group", "browser", "--no-group", "documents",
                "--output-file", requirements, cwd=ROOT)  # fmt: skip
        constraints.write_text("setuptools<68\n", encoding="utf-8")
        with requirements.open("a", encoding="utf-8") as file:
            file.writelines(_without_avx(requirements.read_text(encoding="utf-8"), arch))
        command(uv, "pip", "install", "--quiet", "--target", packages, "--python-version", version,
                "--python-platform", f"{MACHINES[arch]}-manylinux_2_28",
                "--build-constraints", constraints, "--requirements", requirements)  # fmt: skip
    (packages / "checkout.pth").write_text("/mrc-testbed\n", encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = packages / f"mrc_testbed-{project['version']}.dist-info/METADATA"
    metadata.parent.mkdir()
    metadata.write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n",
        encoding="utf-8",
    )


def _without_avx(requirements: str, arch: str) -> Iterator[str]:
    """The requirement of Polars for processors without AVX, in the version that is required.

    Polars prefers it where it is installed. QEMU 7.2 gathers from wrong addresses (VPGATHERQD), at
    which the other one crashes.
    """
    version = re.search(r"^polars==(\S+)", requirements, re.MULTILINE)
    if arch == "amd64" and version is not None:
        yield f"polars-runtime-compat=={version[1]}\n"


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


def command(*arguments: str | Path, cwd: Path | None = None) -> str:
    """Run a program and return its output; its failure ends this one."""
    ended = subprocess.run(
        [str(argument) for argument in arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        cwd=cwd,
        check=False,
        encoding="utf-8",
        errors="replace",
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
