"""GOAL schedules: how they are read, and what hosts do when they follow one."""

from pathlib import Path

import pytest

from testbed.host.plan import plan_endpoints
from testbed.host.workloads.programs import Operation, _Receipts
from testbed.model.checks import problems
from testbed.model.errors import InputError
from testbed.model.fabric.topology import Topology
from testbed.model.files import reading
from testbed.model.files.goal import read_goal
from testbed.model.graph import ANY, SEND, Graph
from testbed.model.graph import Operation as Planned
from testbed.model.workload import Goal
from testbed.mrc import NEVER
from testbed.sandbox.processes import call

from .crew import LOOK_NS, NODES, TOPOLOGY, Crew

DILATION = int(TOPOLOGY.dilation)


@pytest.fixture
def goal(tmp_path: Path) -> Path:
    return tmp_path / "x.goal"


def _read(goal: Path, *ranks: str) -> Graph:
    blocks = (f"rank {i} {{\n{rank}\n}}\n" for i, rank in enumerate(ranks))
    goal.write_text(f"num_ranks {len(ranks)}\n" + "".join(blocks))
    return read_goal(goal)


def _run(graph: Graph, topology: Topology = TOPOLOGY, **keys: object) -> dict[int, Operation]:
    workload = {"kind": "goal", "file": "x.goal", "operations": graph, **keys}
    crew = Crew(workload, topology=topology)
    crew.run(NEVER)
    return {each.number: each for done in crew.finished.values() for each in done}


def test_a_rank_computes_what_it_has_received_and_answers(goal: Path) -> None:
    graph = _read(
        goal,
        "a: send 2000000b to 1 tag 3\nb: recv 5b from 1 tag 4\n",
        "r: recv 2000000b from 0 tag 3\nc: calc 100\nc requires r\ns: send 5b to 0 tag 4\n"
        "s requires c",
    )
    done = _run(graph, calc_unit="10 ns")
    sent, back, received, computed, answered = (done[i] for i in range(5))
    assert [each.kind for each in (sent, back, received, computed)] == [
        "send",
        "recv",
        "recv",
        "calc",
    ]
    assert computed.start_ns == received.end_ns < sent.end_ns
    assert computed.end_ns - computed.start_ns == 100 * 10 * DILATION
    assert answered.start_ns == computed.end_ns < back.end_ns < answered.end_ns


def test_computations_of_one_cpu_follow_one_another(goal: Path) -> None:
    done = _run(_read(goal, "calc 5\ncalc 7 cpu 1\ncalc 6 cpu 0\nsend 0b to 1", "recv 0b from 0"))
    spans = [(done[i].start_ns // DILATION, done[i].end_ns // DILATION) for i in range(3)]
    assert spans == [(0, 5), (0, 7), (5, 11)]
    assert done[3].size == 1  # of 0 bytes nothing would be sent


def test_computations_take_their_time_however_seldom_a_host_looks(goal: Path) -> None:
    """A simulated host looks a few dozen times a round trip, which is longer than many of them."""
    chain = "".join(f"c{i}: calc 10\n" + f"c{i} requires c{i - 1}\n" * (i > 0) for i in range(50))
    graph = _read(goal, f"{chain}s: send 1b to 1\ns requires c49", "recv 1b from 0")
    program = Crew({"kind": "goal", "file": "x", "operations": graph})._programs["h0"]
    program.begin(0)
    posts = [len(program.posts(look * 300 * DILATION)) for look in range(3)]
    assert [each.end_ns for each in program.finished] == [
        10 * DILATION * (i + 1) for i in range(50)
    ]
    assert posts == [0, 0, 1]


def test_irequires_waits_for_the_beginning_only(goal: Path) -> None:
    graph = _read(
        goal, "a: calc 50\nb: calc 5 cpu 1\nb irequires a\nsend 1b to 1", "recv 1b from 0"
    )
    done = _run(graph)
    assert done[1].end_ns == 5 * DILATION


def test_receipts_match_sender_and_tag_oldest_first(goal: Path) -> None:
    """Messages that come before their receipts wait; a receipt of any takes the oldest."""
    graph = _read(
        goal,
        "a: calc 100\nb: recv 1b from 1 tag 2\nb requires a\nc: recv 1b from -1 tag -1\n"
        "c requires b\nd: recv 1b from 2 tag 7",
        "send 1b to 0 tag 2\nsend 1b to 0 tag 9",
        "x: calc 900\ny: send 1b to 0 tag 7\ny requires x",
    )
    done = _run(graph)
    assert len(done) == len(graph)
    assert done[1].end_ns == done[1].start_ns == 100 * DILATION
    assert done[2].end_ns == done[2].start_ns
    assert done[3].end_ns > 900 * DILATION


def test_what_receipts_have_taken_is_not_looked_at_again() -> None:
    """Else n receipts of any sender look at n messages each."""
    receipts = _Receipts()
    for tag in range(100):
        assert receipts.arrived("h1", tag) is None
        assert receipts.posted(tag, "", ANY, now_ns=tag)
        assert not receipts._arrived


def test_a_message_within_a_node_takes_no_time_and_no_packet(goal: Path) -> None:
    graph = _read(
        goal,
        "a: calc 50\nb: send 9000000b to 1 tag 3\nb requires a",
        "r: recv 9000000b from 0 tag 3\ns: send 10b to 2\ns requires r",
        "recv 10b from 1",
    )
    graph.join([0, 0, 1])
    done = _run(graph, topology=NODES)
    assert graph.planned() == {"calc": [0], "recv": [9_000_000, 10], "send": [10]}
    assert done.keys() == {0, 2, 3, 4}
    assert 0 <= done[2].end_ns - done[0].end_ns <= LOOK_NS
    assert done[3].start_ns == done[2].end_ns < done[4].end_ns


def test_messages_pass_between_the_processes_of_two_nics(goal: Path) -> None:
    """Each emulated NIC is one; they are forked from the process that made the plan."""
    graph = _read(goal, "send 9b to 1\nsend 9b to 1\nsend 9b to 2", "recv 9b from 0", "")
    graph.join([0, 0, 1])
    workload = {"kind": "goal", "file": "x.goal", "operations": graph}
    crew = Crew(workload, topology=NODES)
    plans = {host.name: plan for host, plan in plan_endpoints(crew.scenario, Path()).items()}
    ((sender,), (receiver,)) = (plans[host].mailboxes for host in ("h0", "h1"))
    assert not [*receiver.received()]

    def send() -> None:
        for number in (0, 1):
            sender.send("h1", number)

    call(send, isolated=False)
    assert receiver.is_awaited
    assert [*receiver.received()] == [0, 1]
    assert not receiver.is_awaited
    assert not sender.is_awaited


def test_other_hosts_take_part(goal: Path) -> None:
    graph = _read(goal, "send 9b to 1", "recv 9b from 0")
    crew = Crew({"kind": "goal", "file": "x", "operations": graph, "hosts": ["h5", "h2"]})
    crew.run(NEVER)
    assert [len(crew.finished[host]) for host in ("h5", "h2")] == [1, 1]
    assert crew.scenario.flows == (("h5", "h2", 0),)


def test_a_schedule_that_sends_nothing_is_refused(goal: Path) -> None:
    crew = Crew({"kind": "goal", "file": "x", "operations": _read(goal, "calc 10")})
    (problem,) = problems(crew.scenario)
    assert problem.found == "operations that send nothing"


def test_more_ranks_than_hosts_are_refused_at_once(goal: Path) -> None:
    graph = _read(goal, "send 10b to 2", "", "recv 10b from 0")
    crew = Crew({"kind": "goal", "file": "x", "operations": graph, "hosts": ["h5", "h6"]})
    (problem,) = problems(crew.scenario)
    assert problem.found == "3 ranks"
    assert (problem.expected, problem.remedy) == ("2 at most: each is a host", "name more hosts")


def test_recorded_hosts_that_the_fabric_lacks_are_refused() -> None:
    graph = Graph({SEND: "send"})
    graph.add(Planned(SEND, "h0", "x", 1))
    workload = Goal(file="x", operations=graph)
    (problem,) = workload.problems(TOPOLOGY)
    assert (problem.where, problem.found) == ("workload.operations[1]", "x")


def test_too_many_operations_are_refused_with_their_line(
    goal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.model.graph.MAX_OPERATIONS", 2)
    with pytest.raises(InputError, match=r"x\.goal:5: found one more, expected 2 operations at m"):
        _read(goal, "calc 1\ncalc 1\ncalc 1")


def test_comments_and_one_line_ranks_are_read(goal: Path) -> None:
    goal.write_text(
        "// by hand\nnum_ranks 2\n/* two\nranks { */ rank 1 { recv 3b from 0 tag 1 cpu 0 nic 1 }\n"
        "rank 0 {\nl1 : send 3 b to 1 tag 1 // here\n/**/\n}\n"
    )
    graph = read_goal(goal)
    assert [(each.kind, each.host, each.amount) for each in graph] == [(1, "h1", 3), (0, "h0", 3)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n" * 100, "x.goal: found more lines, expected a GOAL schedule of 50 lines at most"),
        ("\0" * 10_001, "x.goal:1: found a longer line, expected lines of 10,000 characters"),
        ("\n/* " + "x" * 10_000, "x.goal:2: found a longer line"),
        ("num_ranks 2\r\n" * 2, "x.goal:2: found num_ranks 2, expected one line num_ranks"),
    ],
)
def test_files_of_too_many_or_too_long_lines_are_refused(
    goal: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.setattr(reading, "MAX_LINES", 50)
    goal.write_bytes(text.encode())
    with pytest.raises(InputError, match=message):
        read_goal(goal)


def test_a_line_goes_on_where_the_next_part_of_a_file_begins(
    goal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_AT_ONCE", 7)
    graph = _read(goal, "a: send 12345b to 1 tag 3\n\n", "recv 12345b from 0 tag 3")
    assert [operation.amount for operation in graph] == [12345, 12345]


HEAD = "num_ranks 2\nrank 0 {\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no operation, expected a GOAL schedule"),
        ("rank 0 {\n}\n", "x.goal:1: found rank 0 {, expected a line such as num_ranks 8 before"),
        ("num_ranks 0\n", "x.goal:1: found num_ranks 0, expected 1 to 262,144 ranks"),
        (f"num_ranks {10**9}\n", "x.goal:1: found num_ranks 1000000000, expected 1 to 262,144 "),
        ("num_ranks 1e9\n", "x.goal:1: found num_ranks 1e9, expected a line such as num_ranks 8"),
        ("num_ranks 1_000\n", "x.goal:1: found num_ranks 1_000, expected a line such as num_rank"),
        (f"{HEAD}/* once */ /* twice\n}}\n", "x.goal:3: found a comment without an end, expected"),
        (f"{HEAD}sned 1b to 1\n}}\n", "x.goal:3: found sned 1b to 1, expected send 10b to 1 tag 0"),
        (f"{HEAD}send 1b to 2\n}}\n", "x.goal:3: found rank 2, expected ranks below 2"),
        (f"{HEAD}send 1b to 0\n}}\n", "x.goal:3: found send 1b to 0, expected another rank"),
        (f"{HEAD}send 1b to -1\n}}\n", "expected a rank and a tag: -1 is for receipts"),
        (f"{HEAD}send 1b from 1\n}}\n", "expected send ... to, or recv ... from"),
        (f"{HEAD}a: calc 5\nb requires a\n}}\n", "x.goal:4: found the label b, expected a label"),
        (f"{HEAD}a: calc 5\na: calc 6\n}}\n", "x.goal:4: found a a second time, expected each"),
        (f"{HEAD}calc 1e3\n}}\n", "x.goal:3: found calc 1e3, expected send 10b to 1 tag 0, recv"),
        (f"{HEAD}calc {10**29}\n}}\n", "a size or time of 1,099,511,627,776 at most"),
        (f"{HEAD}calc 5\n", "x.goal:3: found the end of the file, expected a closing bracket of"),
        (f"{HEAD}calc 5\n}}\nrank 0 {{\n}}\n", "x.goal:5: found rank 0 {, expected each rank once"),
        (
            f"{HEAD}recv 5b from 1\n}}\n",
            "x.goal:3: found a receipt at h0 from h1 that never ends, expected operations that all",
        ),
        (
            (
                f"{HEAD}a: recv 5b from 1\nb: send 5b to 1\nb requires a\n}}\n"
                "rank 1 {\na: recv 5b from 0\nb: send 5b to 0\nb requires a\n}\n"
            ),
            "x.goal:3: found a receipt at h0 from h1 that never ends (and 3 more)",
        ),
        (
            f"{HEAD}recv 9b from 1\nrecv 9b from 1\n}}\nrank 1 {{\nsend 9b to 0\n}}\n",
            "x.goal:4: found a receipt at h0 from h1 that never ends, expected operations that all",
        ),
        ("num_ranks 2\n" + "x" * 20_000, "x.goal:2: found a longer line, expected lines of 10,000"),
        ("\x00\x01\x02", "x.goal:1: found"),
    ],
)
def test_wrong_schedules(goal: Path, text: str, message: str) -> None:
    goal.write_text(text)
    with pytest.raises(InputError) as error:
        read_goal(goal)
    (problem,) = error.value.problems
    assert message in str(problem)
