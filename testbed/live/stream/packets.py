"""The data packets of one flow of a finished run, for slow motion."""

from collections.abc import Iterator

import polars as pl

from testbed.live.stream.records import Packet
from testbed.model.errors import InputError
from testbed.model.run_files.run import FlowRecord
from testbed.results.run_data import RunData

_DIGITS = 6
"""Of times, in seconds."""


def flow_named(data: RunData, name: str) -> FlowRecord:
    """The flow with this name: `h0,h4`.

    Raises:
        InputError: the run has no such flow.
    """
    for flow in data.run.flows:
        if f"{flow.src},{flow.dst}" == name:
            return flow
    first = data.run.flows[0]
    expected = f"a flow of the run, such as {first.src},{first.dst}"
    raise InputError.of("--packets", name, expected)


def packets_of(data: RunData, flow: FlowRecord) -> Iterator[Packet]:
    """The packets of a flow in order of sending: what was sent again is another packet."""
    keys = ["ev", "seq", "retransmitted"]
    sent = data.table("transmissions", flow.flow).filter(pl.col("t") >= 0)
    arrived = (
        data.table("arrivals", flow.flow).group_by(keys).agg(pl.col("t").min().alias("arrived"))
    )
    lost = data.table("losses", flow.flow).filter(~pl.col("spurious"))
    lost = lost.group_by("seq", "sent_t").agg(pl.col("t").min().alias("lost"))
    joined = (
        sent.join(arrived, on=keys, how="left")
        .join(lost, left_on=["seq", "t"], right_on=["seq", "sent_t"], how="left")
        .sort("t", maintain_order=True)
    )
    columns = ("seq", "ev", "t", "arrived", "lost", "retransmitted")
    for seq, ev, t, arrived_t, lost_t, again in joined.select(columns).iter_rows():
        if lost_t is None and arrived_t is None:
            continue  # under way when the run ended
        until = arrived_t if lost_t is None else lost_t
        times = round(t, _DIGITS), round(until, _DIGITS)
        yield Packet(seq, ev, *times, "arrived" if lost_t is None else "lost", again)
