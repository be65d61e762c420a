"""The outcome of flows, from the reports of their hosts."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.host.outcome import flow_outcomes
from testbed.model.files.scenarios import load_scenario
from testbed.model.scenario import Scenario
from testbed.model.units import NS_PER_S

SECONDS = 10


def ports_bps(scenario: Scenario, control_bps: Mapping[str, float]) -> dict[tuple[str, str], float]:
    """What the ports allow each flow, in raw bits/s, beside control packets of these rates."""
    reports: dict[str, dict[str, Any]] = {
        host.name: {
            "sent": [],
            "received": [],
            "control_bytes": int(control_bps.get(host.name, 0.0) * SECONDS / 8),
        }
        for host in scenario.topology.hosts
    }
    for number, (src, _, _) in enumerate(scenario.flows):
        reports[src]["sent"].append({"flow": number, "bytes_sent": 0})
    outcomes = flow_outcomes(scenario, reports, SECONDS * NS_PER_S)
    return {
        (flow.src, flow.dst): flow.ports_bps / scenario.transport.payload_share for flow in outcomes
    }


INCAST = load_scenario("incast")
HOST_BPS = INCAST.topology.planes * INCAST.topology.port_rate_bps


def test_control_packets_take_nothing_where_the_receiver_leaves_room_for_them() -> None:
    """Each of seven senders has a seventh; h4 fills the rest of its port by a flow of its own."""
    before, after = (
        ports_bps(INCAST, {}),
        ports_bps(INCAST, {"h1": HOST_BPS / 7, "h4": HOST_BPS / 7}),
    )
    assert after["h1", "h0"] == before["h1", "h0"]
    taken = {ends: before[ends] - after[ends] for ends in before}
    assert taken["h4", "h0"] == pytest.approx(HOST_BPS / 14)
    assert taken["h4", "h1"] == pytest.approx(HOST_BPS / 14)


@given(of_port=st.dictionaries(st.sampled_from(["h1", "h4", "h5"]), st.floats(0, 50)))
def test_what_ports_allow_is_never_negative(of_port: dict[str, float]) -> None:
    rates = ports_bps(INCAST, {host: share * HOST_BPS for host, share in of_port.items()})
    undisturbed = ports_bps(INCAST, {})
    assert all(0.01 * undisturbed[ends] <= rate * 1.000001 for ends, rate in rates.items())
    assert all(rate <= undisturbed[ends] for ends, rate in rates.items())
