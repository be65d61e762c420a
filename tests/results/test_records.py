"""What processes record comes back as it was, in tables."""

import struct
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from testbed.results.records import (
    ARRIVALS,
    COMPLETIONS,
    EV_EVENTS,
    LINKS,
    LOSSES,
    OF_SOME_RUNS,
    TABLES,
    Recorder,
    raw_path,
    read_raw,
    to_frame,
    write_tables,
)

T0_NS = 10**12


def test_rows_of_several_processes_come_back_in_order_of_time(tmp_path: Path) -> None:
    for process, offset in (("h0", 2), ("h4", 1)):
        with Recorder(raw_path(tmp_path, process, ARRIVALS), ARRIVALS) as recorder:
            for i in range(10_000):
                recorder.append(
                    T0_NS + 2_000_000 * i + offset, offset, 3, 0xFFFF_FFFF, i, 4096, i % 2 == 1
                )
    frame = to_frame(sorted(tmp_path.glob("*.bin")), ARRIVALS, T0_NS)
    assert frame.height == 20_000
    assert frame["t"].is_sorted()
    assert frame.row(1) == (2e-9, 2, 3, 0xFFFF_FFFF, 0, 4096, False)
    assert frame["retransmitted"].sum() == 10_000
    assert frame.schema == pl.Schema(ARRIVALS.frame_schema())


def test_times_before_the_start_are_negative(tmp_path: Path) -> None:
    with Recorder(raw_path(tmp_path, "h0", ARRIVALS), ARRIVALS) as recorder:
        recorder.append(T0_NS - 500_000_000, 0, 0, 0, 0, 0, False)
    assert to_frame(tmp_path.glob("*.bin"), ARRIVALS, T0_NS)["t"].to_list() == [-0.5]


def test_words_are_kept_for_each_process(tmp_path: Path) -> None:
    for process, reasons in (("h0", ["loss", "start"]), ("h4", ["start", "", "loss"])):
        with Recorder(raw_path(tmp_path, process, EV_EVENTS), EV_EVENTS) as recorder:
            for i, reason in enumerate(reasons):
                recorder.append(T0_NS + i, 0, 0, 7, "", "GOOD", True, reason)
    frame = to_frame(sorted(tmp_path.glob("*.bin")), EV_EVENTS, T0_NS)
    assert frame["reason"].to_list() == ["loss", "start", "start", "", "loss"]
    assert set(frame["new"]) == {"GOOD"}


def test_a_loss_that_proved_spurious_is_one_row(tmp_path: Path) -> None:
    with Recorder(raw_path(tmp_path, "h0", LOSSES), LOSSES) as recorder:
        recorder.append(T0_NS + 5, 0, 1, 9, 70, T0_NS + 1, False)
        recorder.append(T0_NS + 6, 0, 1, 9, 71, T0_NS + 2, False)
        recorder.append(T0_NS + 9, 0, 1, 9, 70, T0_NS + 1, True)
    frame = to_frame(tmp_path.glob("*.bin"), LOSSES, T0_NS)
    assert frame.select("t", "seq", "spurious").rows() == [(5e-9, 70, True), (6e-9, 71, False)]


def test_a_row_cut_short_by_a_kill_is_left_out(tmp_path: Path) -> None:
    path = raw_path(tmp_path, "h0", LINKS)
    with Recorder(path, LINKS) as recorder:
        recorder.append(T0_NS, "h0--p0_t0_0", "h0>p0_t0_0", 1, 4242, 0, 0, 0, 0)
        recorder.append(T0_NS + 1, "h0--p0_t0_0", "h0>p0_t0_0", 2, 8484, 0, 0, 0, 0)
    path.write_bytes(path.read_bytes()[:-3])
    assert to_frame([path], LINKS, T0_NS)["packets"].to_list() == [1]


def test_memory_stays_flat(tmp_path: Path) -> None:
    path = raw_path(tmp_path, "h0", ARRIVALS)
    with Recorder(path, ARRIVALS) as recorder:
        for i in range(50_000):
            recorder.append(i, 0, 0, 0, i, 0, False)
        unwritten = 50_000 * ARRIVALS.row.size - path.stat().st_size
        assert 0 <= unwritten < 1 << 16


def test_a_value_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with Recorder(raw_path(tmp_path, "h0", ARRIVALS), ARRIVALS) as recorder:
        with pytest.raises(struct.error):
            recorder.append(1, 0, 200, 0, 0, 0, False)
        with pytest.raises(struct.error):
            recorder.append(1, 0)


def test_a_recorder_never_overwrites(tmp_path: Path) -> None:
    Recorder(raw_path(tmp_path, "h0", ARRIVALS), ARRIVALS).close()
    with pytest.raises(FileExistsError):
        Recorder(raw_path(tmp_path, "h0", ARRIVALS), ARRIVALS)


def test_a_file_that_is_open_only_while_it_is_written_has_every_row(tmp_path: Path) -> None:
    path = raw_path(tmp_path, "h0", LINKS)
    row: list[int | str] = ["h0--p0_t0_0", "h0>p0_t0_0", *[0] * (len(LINKS.columns) - 3)]
    with Recorder(path, LINKS, stays_open=False) as recorder:
        for t in (1, 2):
            recorder.append(t, *row)
            recorder.flush()
        recorder.append(3, *row)
    recorder.close()
    assert read_raw(path, LINKS, 0)["t"].to_list() == [1e-9, 2e-9, 3e-9]
    with pytest.raises(FileExistsError):
        Recorder(path, LINKS, stays_open=False)


def test_tables_that_nobody_recorded_are_there_without_rows(tmp_path: Path) -> None:
    write_tables(tmp_path, tmp_path, T0_NS)
    for table in TABLES:
        if table in OF_SOME_RUNS:
            continue
        columns = pl.read_parquet(tmp_path / f"{table.name}.parquet").columns
        derived = ["start_t"] if table is COMPLETIONS else []
        assert [name for name in columns if name not in derived] == [*table.columns]
        assert set(derived) <= set(columns)


def test_recording_needs_the_standard_library_only() -> None:
    check = (
        "import sys; import testbed.results.records, testbed.results.run_directory, "
        "testbed.results.analyse; "
        "sys.exit(bool({'numpy', 'polars', 'matplotlib', 'jinja2'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", check], check=True)
