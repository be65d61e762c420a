"""The library, the NIC process and the tests agree on every structure, and with rdma-core."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from struct import Struct

import pytest

from testbed.device import abi, profiles, protocol
from testbed.device.compiling import SOURCES
from testbed.mrc.config import Capabilities
from tests.commands import completed
from tests.device import verbs

HEADER = (SOURCES / "protocol.h").read_text()
ABI = (SOURCES / "verbs_abi.h").read_text()
SYSTEM_HEADER = Path("/usr/include/infiniband/verbs.h")
COMPILER = shutil.which("cc")
CODES = {"uint32_t": "I", "int32_t": "i", "uint64_t": "Q", "uint8_t": "s"}

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")


def fields_of(text: str, name: str) -> list[tuple[str, str, int]]:
    """The fields of a structure in C: type, name, length (0: no array)."""
    body = re.search(rf"struct {name} \{{(.*?)\n\}};", text, re.DOTALL)
    assert body is not None, name
    code = re.sub(r"/\*.*?\*/", "", body[1], flags=re.DOTALL)
    found = re.findall(r"([\w ]+?\**) ?\*?(\w+)(?:\[(\w+)\])?;", code)
    return [
        (kind.strip(), field, int(length) if length.isdigit() else len(length))
        for kind, field, length in found
    ]


def format_of(fields: list[tuple[str, str, int]]) -> str:
    return "=" + "".join(f"{length or ''}{CODES[kind]}" for kind, _, length in fields)


@pytest.mark.parametrize(
    ("name", "names", "layout"),
    [
        ("mrc_request", protocol.Request._fields, protocol.REQUEST),
        ("mrc_reply", protocol.Reply._fields, protocol.REPLY),
        (
            "mrc_cqe",
            ("wr_id", "status", "opcode", "length", "immediate", "qpn", "flags"),
            protocol.CQE,
        ),
        ("mrc_sge", ("address", "length", "key"), protocol.SGE),
        ("mrc_event", ("cookie", "type", "port"), protocol.EVENT),
    ],
)
def test_python_and_the_header_have_the_same_fields(
    name: str, names: tuple[str, ...], layout: Struct
) -> None:
    """In the same order and of the same sizes, without padding of the compiler's."""
    fields = fields_of(HEADER, name)
    assert tuple(field for _, field, _ in fields) == names
    assert Struct(format_of(fields)).size == layout.size
    assert Struct("@" + format_of(fields)[1:]).size == layout.size


def test_constants_and_operations_are_the_same() -> None:
    for c_name, value in (
        ("VERSION", protocol.VERSION),
        ("MAX_SGE", protocol.MAX_SGE),
        ("MAX_INLINE", protocol.MAX_INLINE),
        ("MAX_DEPTH", protocol.MAX_DEPTH),
        ("MAX_CQE", protocol.MAX_CQE),
        ("ENTRIES_OFFSET", protocol.ENTRIES_OFFSET),
        ("ARMED_SOLICITED", protocol.ARMED_SOLICITED),
    ):
        assert re.search(rf"#define MRC_{c_name} {value}\b", HEADER), c_name
    assert f'#define MRC_SOCKET "{protocol.SOCKET[1:]}"' in HEADER
    body = re.search(r"enum mrc_op \{(.*?)\};", HEADER, re.DOTALL)
    assert body is not None
    assert re.findall(r"MRC_(\w+)", re.sub(r"/\*.*?\*/", "", body[1])) == [
        op.name for op in protocol.Op
    ]


def run_c(code: str, directory: Path, *options: str) -> str:
    assert COMPILER is not None
    source = directory / "program.c"
    source.write_text(code)
    program = directory / "program"
    subprocess.run(
        [COMPILER, *options, f"-I{SOURCES}", str(source), "-o", str(program)], check=True
    )
    return completed([program], check=True).stdout


@needs_compiler
def test_rings_lie_where_python_reads_them(tmp_path: Path) -> None:
    places = ("ring, tail", "ring, head", "ring, done", "ring, armed", "wqe, sge", "copy, places")
    prints = "".join(f'printf("%zu ", offsetof(struct mrc_{place}));' for place in places)
    sizes = "".join(
        f'printf("%zu ", sizeof(struct mrc_{name}));' for name in ("ring", "wqe", "copy")
    )
    output = run_c(
        "#include <stdio.h>\n#include <stddef.h>\n#include <protocol.h>\n"
        f"int main(void) {{ {prints}{sizes} }}",
        tmp_path,
    )
    words = (protocol.TAIL, protocol.HEAD, protocol.DONE, protocol.ARMED)
    expected = [4 * word for word in words] + [protocol.WQE.size, protocol.COPY.size]
    expected += [protocol.RING_BYTES, protocol.WQE_BYTES, protocol.COPY_BYTES]
    assert [int(word) for word in output.split()] == expected


STRUCTURES = re.findall(r"^struct (ibv_\w+) \{", ABI, re.MULTILINE)
OTHERWISE = {
    "_ops",
    "atomic",
    "rest",
    *(f"_{of}{i}" for of in ("compat", "more") for i in range(1, 7)),
}
"""Fields that stand for several of rdma-core's."""


def measured(include: str, directory: Path) -> str:
    prints = []
    for name in STRUCTURES:
        prints.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
        if name in {"ibv_async_event", "ibv_send_wr"}:
            continue  # what they have inside is below
        for _, field, _ in fields_of(ABI, name):
            if field not in OTHERWISE:
                prints.append(
                    f'printf("{name}.{field} %zu %zu\\n", offsetof(struct {name}, {field}), '
                    f"sizeof((({'struct'} {name} *)0)->{field}));"
                )
    prints += [
        f'printf("{place} %zu\\n", offsetof(struct ibv_send_wr, {place}));'
        for place in ("send_flags", "imm_data", "wr.rdma.remote_addr", "wr.rdma.rkey")
    ]
    prints.append('printf("%zu\\n", offsetof(struct ibv_async_event, event_type));')
    code = f"#include <stdio.h>\n#include <stddef.h>\n#include <{include}>\n"
    return run_c(code + "int main(void) {\n" + "\n".join(prints) + "\n}", directory, "-w")


@needs_compiler
@pytest.mark.skipif(not SYSTEM_HEADER.exists(), reason="needs libibverbs-dev")
def test_our_declarations_are_rdma_cores(tmp_path: Path) -> None:
    """Every field of every structure, its offset and its size."""
    assert len(STRUCTURES) > 15
    ours = measured("verbs_abi.h", tmp_path)
    assert ours.count("\n") > 150
    assert ours == measured("infiniband/verbs.h", tmp_path)


@needs_compiler
@pytest.mark.skipif(not SYSTEM_HEADER.exists(), reason="needs libibverbs-dev")
def test_our_constants_are_rdma_cores(tmp_path: Path) -> None:
    """Each as its number; names of ours alone have no other prefix."""
    bodies = " ".join(re.findall(r"enum \{(.*?)\};", ABI, re.DOTALL))
    names = [n for n in re.findall(r"IBV_\w+", bodies) if n != "IBV_ACCESS_OPTIONAL_RANGE"]
    prints = "".join(f'printf("{name} %d\\n", (int){name});' for name in names)
    ours, theirs = (
        run_c(f"#include <stdio.h>\n#include <{file}>\nint main(void) {{ {prints} }}", tmp_path)
        for file in ("verbs_abi.h", "infiniband/verbs.h")
    )
    assert len(names) > 50
    assert ours == theirs


@needs_compiler
def test_the_structures_of_controllers_have_the_sizes_that_python_reads(tmp_path: Path) -> None:
    layouts = {
        "mrc_qp_attr": abi.QP_ATTR,
        "mrc_ctl_device_attr": profiles.DEVICE_ATTR,
        "mrc_ctl_port_attr": profiles.PORT_ATTR,
        "mrc_ctl_ev_fmt_profile_attr": profiles.FORMAT_ATTR,
        "mrc_ctl_ev_profile_attr": profiles.EV_ATTR,
        "mrc_ctl_cc_profile_attr": profiles.CC_ATTR,
        "mrc_ctl_cc_nscc_cfg": profiles.NSCC,
        "mrc_ctl_ev_field": profiles.EV_FIELD,
        "mrc_ctl_ev_op_entry": profiles.EV_ENTRY,
        "mrc_ctl_ev_event": profiles.EVENT,
        "mrc_ctl_ep_req": profiles.PROBE,
        "mrc_ctl_ep_rsp": profiles.ANSWER,
    }
    prints = "".join(f'printf("%zu\\n", sizeof(struct {name}));' for name in layouts)
    older = 'printf("%zu\\n", offsetof(struct mrc_ctl_ev_event, state));'
    code = f"#include <stdio.h>\n#include <mrc_abi.h>\nint main(void) {{ {prints}{older} }}"
    sizes = [int(size) for size in run_c(code, tmp_path).split()]
    assert sizes == [layout.size for layout in [*layouts.values(), profiles.OLD_EVENT]]


def test_calls_of_controllers_are_the_same() -> None:
    body = re.search(r"enum mrc_call \{(.*?)\};", HEADER, re.DOTALL)
    assert body is not None
    names = re.findall(r"MRC_(\w+)", re.sub(r"/\*.*?\*/", "", body[1], flags=re.DOTALL))
    assert names == [call.name for call in protocol.Call]


OCP_ABI = SOURCES.parents[2] / "scripts/ocp_abi.py"


@needs_compiler
@pytest.mark.parametrize(
    ("old", "new", "status", "said"),
    [
        ("", "", 0, "2 functions; their version 1.0.1: 0 differ"),
        ("uint16_t max_wimm;", "uint32_t max_wimm;", 1, "sizeof(struct mrc_device_attr): 20 here"),
        ("MRC_CTL_EV_DENIED = 4", "MRC_CTL_EV_DENIED = 8", 1, "MRC_CTL_EV_DENIED: 4 here, 8 there"),
        ("int mrc_ctl_fly(", "", 1, "mrc_ctl_fly() is missing here"),
        ("struct mrc_async_event {", "struct", 2, "the compiler refuses mrc.h"),
    ],
)
def test_ocps_headers_are_compared_with_ours(
    old: str, new: str, status: int, said: str, tmp_path: Path
) -> None:
    """With a copy of ours in their place, and something changed in it."""
    text = (SOURCES / "mrc_abi.h").read_text()
    functions = "int mrc_post_send(void);\nvoid *mrc_ctl_poll_ev_event(void);\n"
    if old.startswith("int "):
        functions += f"{old}void);\n"
    else:
        assert not old or old in text
        text = text.replace(old, new, 1)
    shutil.copy(SOURCES / "verbs_abi.h", tmp_path)
    (tmp_path / "mrc.h").write_text(text)
    (tmp_path / "mrc_ctl.h").write_text(functions)
    version = "#define MRC_API_CURRENT_VERSION  MRC_API_VER(1, 0, 1)\n"
    (tmp_path / "mrc_api_ver.h").write_text(version)
    done = completed([OCP_ABI, str(tmp_path)])
    assert (done.returncode, said in done.stdout + done.stderr) == (status, True), done


@pytest.mark.parametrize("arguments", [[], ["--help"], ["/nowhere"]])
def test_without_ocps_headers_the_comparison_says_what_it_needs(arguments: list[str]) -> None:
    done = completed([OCP_ABI, *arguments])
    assert done.returncode == 2
    assert "mrc.h and mrc_ctl.h" in done.stderr


def test_attributes_of_a_queue_pair_are_read_as_they_are_packed() -> None:
    own, peer = Capabilities(3, True, 5), Capabilities(7, True, 11, False)
    packed = abi.MrcAttributes(own, peer, 4, 25, 6, 9)
    assert abi.MrcAttributes.parse(packed.pack()) == packed


@needs_compiler
def test_the_structures_of_python_are_the_librarys(tmp_path: Path) -> None:
    pairs = {
        "ibv_qp_attr": abi.QpAttr,
        "ibv_qp_init_attr": verbs.QpInit,
        "ibv_send_wr": abi.SendWr,
        "ibv_recv_wr": abi.RecvWr,
        "ibv_wc": abi.Wc,
        "ibv_mr": abi.Mr,
        "mrc_qp_init_attr": abi.MrcQpInit,
        "ibv_context_ops": verbs.Ops,
        "ibv_async_event": verbs.AsyncEvent,
    }
    in_union = {"remote_addr": "wr.rdma.remote_addr", "rkey": "wr.rdma.rkey"}
    expected, asked = list[int](), list[str]()
    for name, kind in pairs.items():
        asked.append(f"sizeof(struct {name})")
        expected.append(ctypes.sizeof(kind))
        for field, *_ in kind._fields_ if kind.__module__ == abi.__name__ else ():
            if not field.startswith("_"):
                place = in_union.get(field, field) if kind is abi.SendWr else field
                asked.append(f"offsetof(struct {name}, {place})")
                expected.append(getattr(kind, field).offset)
    prints = "".join(f'printf("%zu\\n", {each});' for each in asked)
    includes = "#include <stddef.h>\n#include <stdio.h>\n#include <mrc_abi.h>\n"
    found = map(int, run_c(f"{includes}int main(void) {{ {prints} }}", tmp_path).split())
    assert dict(zip(asked, found, strict=True)) == dict(zip(asked, expected, strict=True))
