"""pcapng files: what was written is read, by us and by tshark and capinfos."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation.fabric.capture import (
    _ALLOCATED_BYTES,
    RING_FRAMES,
    RINGS_BYTES,
    _ring_frames,
    header,
    packet,
)
from tests.commands import completed
from tests.judging import skip_without
from tests.pcapng import Capture, read_capture

COMMENT = "realtime_offset_ns = 1764002334123456789: a clock's offset"
PORTS = ("h0-p1", "p1_t0_0-d0")
FRAME = bytes.fromhex("ffffffffffff 020000000001 86dd") + bytes(range(50))
BEGAN_NS = 1_764_002_334_123_456_789


@given(
    st.text(max_size=99),
    st.lists(
        st.tuples(
            st.integers(0, 1), st.integers(0, (1 << 64) - 1), st.binary(min_size=1, max_size=99)
        )
    ),
)
def test_what_was_written_is_read(comment: str, frames: list[tuple[int, int, bytes]]) -> None:
    written = header(comment, PORTS, 9014) + b"".join(packet(*frame) for frame in frames)
    read = tuple((PORTS[number], time_ns, data) for number, time_ns, data in frames)
    assert read_capture(written) == Capture(comment, PORTS, read)


@pytest.mark.parametrize("ports", [2, 8, 16, 128, 254, 500])
def test_the_rings_of_all_ports_fit_into_their_memory(ports: int) -> None:
    """A link has the whole ring; all links of the default fabric share what there is."""
    frames = _ring_frames(ports)
    assert 16 <= frames <= RING_FRAMES
    assert frames % 2 == 0
    assert ports * frames * _ALLOCATED_BYTES <= RINGS_BYTES
    assert ports > 16 or frames == RING_FRAMES


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a frame of each port."""
    path = tmp_path / "link.pcapng"
    frames = (packet(number, BEGAN_NS + number, FRAME + bytes(number)) for number in (0, 1))
    path.write_bytes(header(COMMENT, PORTS, 9014) + b"".join(frames))
    return path


@skip_without("capinfos", "wireshark-common")
def test_capinfos_shows_the_comment(file: Path) -> None:
    shown = completed(["capinfos", "-k", file], check=True)
    assert COMMENT in shown.stdout


@skip_without("tshark")
def test_tshark_shows_ports_and_times_to_the_nanosecond(file: Path) -> None:
    fields = ("frame.interface_name", "frame.time_epoch", "frame.len")
    command = ["tshark", "-r", str(file), "-T", "json", *(w for f in fields for w in ("-e", f))]
    shown = completed(command, check=True)
    layers = [frame["_source"]["layers"] for frame in json.loads(shown.stdout)]
    assert [[layer[field][0] for field in fields] for layer in layers] == [
        ["h0-p1", "1764002334.123456789", "64"],
        ["p1_t0_0-d0", "1764002334.123456790", "65"],
    ]
