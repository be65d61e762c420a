"""The state of a run as Prometheus metrics."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, make_asgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from testbed.live.server import Guarded, server_of
from testbed.live.serving import LOOPBACK, access_to
from testbed.live.stream.records import RunState
from testbed.model.run_files.content import PAGE_SERVER, WATCHER, HealthSample
from testbed.model.units import NS_PER_S
from testbed.sandbox.system_calls import cpu_ns


class RunCollector(Collector):
    """Reads the state of a run each time that it is scraped."""

    def __init__(self, run_state: Callable[[], RunState]) -> None:
        """Collect from what `run_state` returns."""
        self._run_state = run_state

    def collect(self) -> Iterator[Metric]:
        """Every metric, as it is now; copied, since another thread goes on with the stream."""
        run_state = self._run_state()
        snapshot = run_state.snapshot
        if snapshot is None:
            return
        names = {flow.flow: flow.name for flow in snapshot.flows}
        yield GaugeMetricFamily("mrc_run_time_seconds", "Time of the run, as emulated", run_state.t)
        yield GaugeMetricFamily("mrc_faults_in_force", "Faults in force", len(run_state.in_force))
        flow = [({"flow": names[key]}, state) for key, state in list(run_state.flows.items())]
        goodput = GaugeMetricFamily(
            "mrc_flow_goodput_bytes_per_second", "Goodput", labels=_labels(flow)
        )
        for labels, measured in flow:
            if measured.goodput_bps is not None:
                goodput.add_metric([*labels.values()], measured.goodput_bps / 8)
        yield goodput
        yield _gauge("mrc_flow_cwnd_bytes", "Congestion window", flow, "cwnd_bytes")
        yield _gauge("mrc_flow_inflight_bytes", "Bytes in flight", flow, "inflight_bytes")
        yield _counter("mrc_flow_lost_packets", "Packets declared lost", flow, "lost")
        yield _counter("mrc_flow_retransmitted_packets", "Sent again", flow, "retransmitted")
        yield _counter("mrc_flow_corrupted_bytes", "Bytes that differ", flow, "corrupted_bytes")
        link = [({"direction": key}, state) for key, state in list(run_state.links.items())]
        yield _gauge("mrc_link_load_ratio", "Share of the rate that is used", link, "load")
        yield _gauge("mrc_link_queue_bytes", "Backlog of the sending port", link, "queue_bytes")
        yield _counter("mrc_link_marked_packets", "Packets that got an ECN mark", link, "marked")
        yield _counter("mrc_link_trimmed_packets", "Packets that were trimmed", link, "trimmed")
        yield _counter("mrc_link_dropped_packets", "Packets that were dropped", link, "dropped")
        active = GaugeMetricFamily(
            "mrc_ev_active", "Whether an EV is in the active set", labels=("flow", "ev", "state")
        )
        for key, (is_active, state) in list(run_state.roles.items()):
            number, _, ev = key.partition(":")
            active.add_metric((names[int(number)], f"{int(ev):#06x}", state), is_active)
        yield active
        detections = GaugeMetricFamily(
            "mrc_detection_seconds", "Time until a flow detected a fault", labels=("fault", "flow")
        )
        for detection in list(run_state.detections):
            named = str(detection.fault), names[detection.flow]
            detections.add_metric(named, detection.after_s)
        yield detections


_Labelled = list[tuple[dict[str, str], Any]]


def _gauge(name: str, text: str, states: _Labelled, attribute: str) -> Metric:
    return _filled(GaugeMetricFamily(name, text, labels=_labels(states)), states, attribute)


def _counter(name: str, text: str, states: _Labelled, attribute: str) -> Metric:
    return _filled(CounterMetricFamily(name, text, labels=_labels(states)), states, attribute)


def _labels(states: _Labelled) -> list[str]:
    return [*states[0][0]] if states else []


def _filled(metric: Any, states: _Labelled, attribute: str) -> Metric:
    for labels, state in states:
        value = getattr(state, attribute)
        if value is not None:
            metric.add_metric([*labels.values()], value)
    family: Metric = metric
    return family


def registry_of(run_state: Callable[[], RunState]) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(RunCollector(run_state))
    return registry


def serve_metrics(port: int, run_state: Callable[[], RunState]) -> None:
    """Serve the metrics on the loopback, in a thread; they have no token, as Prometheus has none.

    Raises:
        OSError: the port is taken.
    """
    listener = socket.create_server((LOOPBACK, port))
    access = replace(access_to(LOOPBACK, listener.getsockname()[1]), token=None)
    server = server_of(Guarded(make_asgi_app(registry_of(run_state)), access))
    serving = server.serve(sockets=[listener])
    threading.Thread(target=asyncio.run, args=(serving,), daemon=True).start()


# --------------------------------------------------------------------------------------------------
# What being watched costs: the CPU time of the watching process and of the page's server.


class CostLog:
    """Appends a line a second for each of the two processes to `health.jsonl` of a run."""

    def __init__(self, health: Path) -> None:
        self._health = health
        self._since_ns = time.monotonic_ns()
        self._own_ns = time.process_time_ns()
        self._server = (0, 0)

    def write(self, server: int) -> None:
        """Write the lines if they are due; `server` is the PID of the page's server."""
        now_ns = time.monotonic_ns()
        interval_ns = now_ns - self._since_ns
        if interval_ns < NS_PER_S:
            return
        own_ns, server_ns = time.process_time_ns(), 0
        with suppress(OSError):  # it has ended
            server_ns = cpu_ns(server)
        before = self._server[1] if self._server[0] == server else server_ns
        spent = {WATCHER: own_ns - self._own_ns, PAGE_SERVER: server_ns - before}
        lines = [
            HealthSample(t_ns=now_ns, process=name, interval_ns=interval_ns, cpu_ns=used).to_line()
            for name, used in spent.items()
        ]
        with self._health.open("ab", buffering=0) as file:
            file.write("".join(lines).encode())
        self._since_ns, self._own_ns, self._server = now_ns, own_ns, (server, server_ns)
