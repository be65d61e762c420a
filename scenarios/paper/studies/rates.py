"""What hosts get out of a fabric without faults, as at full speed, of their ports' rate."""

from testbed import Result
from testbed.studies.paper.experiments import rates
from testbed.studies.paper.experiments.drawing import PORTS_GBPS, bus_gbps


def one_way_us(run: Result) -> float | None:
    """The median time from handing the packet to the port until it is in place."""
    (flow,) = run.summary.flows
    return rates.one_way_us(run) if flow.latency else None


def half_round_trip_us(run: Result) -> float:
    """Half of the median time from posting until completion."""
    return rates.half_round_trip_us(run)


def write_fraction(run: Result) -> float:
    """What the receiver of a write gets."""
    return rates.bandwidth_gbps(run) / rates.NIC_GBPS


def bus_fraction(run: Result) -> float:
    """The bus bandwidth of a collective."""
    return bus_gbps(run) / PORTS_GBPS
