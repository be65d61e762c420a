"""Jobs of a scenario: their flows, and what is made of them."""

from typing import Any

from testbed.model.flows import flows_of
from testbed.model.scenario import Scenario
from testbed.model.workload import Connections

RING = {"kind": "allreduce", "hosts": ["h0", "h4"]}
ONE_WAY = {"pairs": [["h0", "h4"], ["h0", "h5"]], "bidirectional": False}


def scenario(*workloads: dict[str, Any], **keys: Any) -> Scenario:
    """A scenario with these jobs; the second begins at 1 s, and so on."""
    jobs = [
        {"name": f"job{i}", "start": f"{i} s", "workload": each} for i, each in enumerate(workloads)
    ]
    topology = {"name": "t", "planes": 2, "t0_per_plane": 2, "t1_per_plane": 2, "hosts_per_t0": 4}
    return Scenario.model_validate({"name": "x", "topology": topology, "jobs": jobs, **keys})


def test_each_job_has_queue_pairs_of_its_own() -> None:
    """Lanes count over both directions of two hosts: a queue pair has one job."""
    flows = flows_of(scenario(ONE_WAY, RING, ONE_WAY, transport={"qps": 2}))
    named = [(f.src.name, f.dst.name, f.lane, f.job) for f in flows]
    first = [("h0", "h4", 0, 0), ("h0", "h4", 1, 0), ("h0", "h5", 0, 0), ("h0", "h5", 1, 0)]
    ring = [("h0", "h4", 2, 1), ("h0", "h4", 3, 1), ("h4", "h0", 2, 1), ("h4", "h0", 3, 1)]
    last = [("h0", "h4", 4, 2), ("h0", "h4", 5, 2), ("h0", "h5", 2, 2), ("h0", "h5", 3, 2)]
    assert named == [*first, *ring, *last]
    assert [flow.number for flow in flows] == list(range(12))


def test_a_workload_is_a_job_without_a_name() -> None:
    several = scenario(RING)
    single = several.model_copy(update={"jobs": (), "workload": several.jobs[0].workload})
    assert single.flows == several.flows
    (job,) = single.job_list
    assert (job.name, job.start, job.label("step")) == ("", 0, "step")
    assert several.jobs[0].label("step") == "job0/step"


def test_signals_are_those_of_the_job_that_has_a_barrier() -> None:
    training = {"kind": "training", "hosts": ["h0", "h1", "h4"], "compute": "1 ms"}
    pairs = {"pairs": [["h1", "h0"]], "bidirectional": False}
    both = scenario(pairs, training)
    signalling = {both.flows[number] for number in both.signals}
    assert signalling == {("h1", "h0", 1), ("h0", "h4", 0)}


def test_times_of_jobs_stretch_with_the_run() -> None:
    matrix = [{"src": "h0", "dst": "h4", "start": "10 us", "size": 1000}]
    jobs = scenario(RING, {"kind": "connections", "matrix": matrix})
    assert [job.start for job in jobs.stretched(2).jobs] == [0, 2 * 10**9]
    assert [job.start for job in jobs.at_dilation(20_000).jobs] == [0, 2 * 10**9]
    (_, longer) = jobs.longer(3).jobs
    assert longer.start == 3 * 10**9
    assert isinstance(longer.workload, Connections)
    assert longer.workload.matrix[0].size == 3000


def test_which_jobs_a_run_also_makes_alone() -> None:
    both, many = scenario(RING, ONE_WAY), scenario(*[RING] * 9)
    assert both.run_alone(simulated=True) == both.jobs
    assert both.run_alone(simulated=False) == many.run_alone(simulated=True) == ()
    assert scenario(RING).run_alone(simulated=True) == ()
    asked = scenario(RING, ONE_WAY, interference=True)
    assert asked.run_alone(simulated=False) == asked.jobs
    bounded = scenario(*[RING] * 9, expect={"jobs": {"interference": {"at_most": 2}}})
    assert len(bounded.run_alone(simulated=False)) == 9
    assert bounded.model_copy(update={"interference": False}).run_alone(simulated=True) == ()
    alone = asked.alone(asked.jobs[1])
    assert [(src, dst) for src, dst, _ in alone.flows] == [("h0", "h4"), ("h0", "h5")]
    assert alone.jobs[0].start == 10**9
    assert alone.run_alone(simulated=True) == ()
