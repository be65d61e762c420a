"""What a scenario says about the wire format: the packets show it, and the manifest records it."""

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.model.files.scenarios import load_scenario
from testbed.mrc import Datagram, DscpClasses, decode
from testbed.mrc.wire.codec import sealed_trailer
from testbed.mrc.wire.control import Nack, ReliabilityProbe, Sack
from testbed.sim import simulate
from testbed.sim.host import Egress

pytestmark = [pytest.mark.simulated, pytest.mark.long]

MS = 1_000_000
OPCODE_AT = 48


def packets_of(
    monkeypatch: pytest.MonkeyPatch, directory: Path, name: str, **transport: Any
) -> list[Datagram]:
    """Simulate the first second of a scenario with other keys of `transport`."""
    sent: list[Datagram] = []  # with the iCRC that a simulation does not compute
    send = Egress.send

    def recorded(egress: Egress, datagram: Datagram, peer: bytes, now_ns: int) -> int:
        header, payload, trailer = datagram.header, datagram.payload, datagram.trailer
        sealed = sealed_trailer(header, payload, trailer)
        sent.append(datagram._replace(trailer=sealed))
        return send(egress, datagram, peer, now_ns)

    scenario = load_scenario(name)
    keys = scenario.transport.model_dump() | transport
    scenario = scenario.model_copy(
        update={
            "duration": 1000 * MS,
            "timeline": (),
            "transport": type(scenario.transport).model_validate(keys),
        }
    )
    directory.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(Egress, "send", recorded)
        simulate(scenario, directory)
    return sent


def manifest(directory: Path) -> dict[str, Any]:
    """The transport that the manifest records."""
    recorded = json.loads((directory / "manifest.json").read_text())
    transport: dict[str, Any] = recorded["scenario"]["transport"]
    return transport


def test_capabilities_are_recorded_and_obeyed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = {"mpr": 1, "dynamic_mpr": True, "immediates": 3, "trim_nack": False}
    datagrams = packets_of(monkeypatch, tmp_path / "run", "incast", dialect={"capabilities": given})
    assert manifest(tmp_path / "run")["dialect"]["capabilities"] == given
    packets = [decode(datagram.join()) for datagram in datagrams if not datagram.is_data]
    assert {packet.mpr for packet in packets if isinstance(packet, Sack)} == {1}
    assert not [packet for packet in packets if isinstance(packet, Nack)]


def test_what_is_not_said_is_recorded_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    datagrams = packets_of(monkeypatch, tmp_path / "run", "incast")
    capabilities = {"mpr": 8, "dynamic_mpr": False, "immediates": 64, "trim_nack": True}
    assert manifest(tmp_path / "run")["dialect"] == {
        "capabilities": capabilities,
        "judgement": "absolute",
        "congestion_scope": "queue-pair",
    }
    packets = [
        (decode(datagram.join()), datagram.dscp) for datagram in datagrams if not datagram.is_data
    ]
    assert [packet for packet, _ in packets if isinstance(packet, Nack)]
    probes = {dscp for packet, dscp in packets if isinstance(packet, ReliabilityProbe)}
    assert probes <= {DscpClasses().trimmable}
