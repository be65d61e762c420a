"""The traces behind the pictures of docs/protocol.md, and the pictures."""

import re
from collections.abc import Iterator
from pathlib import Path

from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path as Lines
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from scripts.protocol_pictures import (
    BAD_EV,
    IMAGES,
    RTT_NS,
    Fate,
    Trace,
    arrows,
    draw_all,
    draw_states,
    loss,
    path_death,
    states_figure,
    trim,
)
from testbed.mrc import EvState
from testbed.mrc.entropy import TRANSITIONS, EvAction
from testbed.results.report.figures.style import style


def repeats(trace: Trace) -> list[tuple[str, int]]:
    return [
        (crossing.text, crossing.datagram.ev)
        for crossing in trace.crossings
        if crossing.datagram.retransmitted
    ]


def story(trace: Trace) -> list[tuple[int, EvState, EvState, str]]:
    return [(change.ev, change.old, change.new, change.reason) for change in trace.changes]


def test_a_lost_packet_condemns_its_path_and_is_repeated_on_another() -> None:
    trace = loss()
    ((text, ev),) = repeats(trace)
    assert text == "WRITE 2, rtx"
    assert ev != BAD_EV
    assert story(trace) == [
        (BAD_EV, EvState.GOOD, EvState.ASSUMED_BAD, "late"),
        (4, EvState.GOOD, EvState.GOOD, "substitute"),
    ]
    assert trace.crossings[-1].text != "WRITE 2, rtx"
    assert any(crossing.text == "SACK cack 19" for crossing in trace.crossings)


def test_a_trimmed_packet_is_repeated_when_its_nack_comes_and_condemns_nobody() -> None:
    trace = trim()
    (cut,) = (crossing for crossing in trace.crossings if crossing.fate is Fate.TRIMMED)
    (nack,) = (crossing for crossing in trace.crossings if crossing.text.startswith("NACK"))
    (again,) = (crossing for crossing in trace.crossings if crossing.datagram.retransmitted)
    assert nack.sent_ns == cut.arrives_ns
    assert nack.arrives_ns <= again.sent_ns <= nack.arrives_ns + RTT_NS // 8
    assert [new for _, _, new, _ in story(trace)] == [EvState.SKIP, EvState.GOOD]


def test_a_dead_path_is_left_and_returns_after_three_answers() -> None:
    trace = path_death()
    lost = [crossing for crossing in trace.crossings if crossing.fate is Fate.LOST]
    assert {crossing.datagram.ev for crossing in lost} == {BAD_EV}
    data = [crossing for crossing in lost if crossing.datagram.is_data]
    assert len(repeats(trace)) == len(data)
    assert [reason for *_, reason in story(trace)] == [
        *("late", "substitute", "owner returned", "probes answered"),
    ]
    condemned, returned = trace.changes[0].time_ns, trace.changes[-1].time_ns
    assert all(crossing.sent_ns < condemned for crossing in data)
    answers = [
        crossing
        for crossing in trace.crossings
        if crossing.datagram.ev == BAD_EV
        and crossing.text.startswith("probe reply")
        and condemned < crossing.arrives_ns <= returned
    ]
    assert sum(crossing.side == 1 for crossing in answers) == 3


def test_the_states_are_drawn_from_the_table(tmp_path: Path) -> None:
    draw_states(tmp_path / "states.svg")
    text = (tmp_path / "states.svg").read_text()
    for (state, event), (new, action) in TRANSITIONS.items():
        if (state, EvAction.STAY) != (new, action):
            assert event.value in arrows()[state, new]
            assert event.value in text


def arrow_lines(arrow: FancyArrowPatch) -> list[Lines]:
    """Its line and its head, where they are on the page."""
    path = arrow.get_transform().transform_path(arrow.get_path())
    return [Lines(polygon) for polygon in path.to_polygons(closed_only=False)]


def line_boxes(label: Text) -> Iterator[Bbox]:
    """Where each line of a label stands, and a little around it."""
    whole, lines = label.get_window_extent(), label.get_text().split("\n")
    height = whole.height / len(lines)
    for number, line in enumerate(lines):
        label.set_text(line)
        alone = label.get_window_extent()
        top = whole.y1 - number * height
        yield Bbox([[alone.x0, top - height], [alone.x1, top]]).padded(1)


def test_arrows_of_the_states_touch_no_label_but_their_own() -> None:
    """A label on white interrupts its arrow; every other stands beside it."""
    with style():
        figure = states_figure()
        figure.draw_without_rendering()
        (axes,) = figure.axes
        drawn = [arrow_lines(patch) for patch in axes.patches if isinstance(patch, FancyArrowPatch)]
        assert len(drawn) == len(arrows()) - 1
        for label in axes.texts:
            boxes = list(line_boxes(label))
            touched = [
                lines for lines in drawn if any(a.intersects_bbox(b) for a in lines for b in boxes)
            ]
            assert len(touched) == (label.get_bbox_patch() is not None), label.get_text()


def test_every_picture_is_in_the_document(tmp_path: Path) -> None:
    draw_all(tmp_path)
    documented = (IMAGES.parent / "protocol.md").read_text()
    names = re.findall(r"images/(protocol-[\w-]+\.png)", documented)
    assert {file.name for file in tmp_path.iterdir()} == {*names}
