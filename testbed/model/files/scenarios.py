"""Scenarios from YAML files."""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from testbed.model.checks import problems
from testbed.model.errors import InputError, Problem, Remark, few, raise_any
from testbed.model.fabric.topology import NOMINAL_DILATION, Topology
from testbed.model.faults.checks import single_fault_problems
from testbed.model.faults.kinds import Fault, TemporaryFault
from testbed.model.file_names import is_there
from testbed.model.files.catalog import find_scenario, relative_to_here
from testbed.model.files.chakra import read_chakra
from testbed.model.files.goal import read_goal
from testbed.model.files.matrices import read_matrix
from testbed.model.files.own_code import opened, with_own_code
from testbed.model.files.reading import Document, parse_request, read_document, with_value
from testbed.model.files.topologies import BASE, is_auto, topology_of_scenario, with_dilation
from testbed.model.files.validation import validated
from testbed.model.graph import Graph
from testbed.model.own_code import recorded_code
from testbed.model.part import Part, kinds_of, times_in
from testbed.model.scenario import Scenario
from testbed.model.transport import Mrc, Transport
from testbed.model.units import (
    EMULATED,
    NS_PER_S,
    BaseRtt,
    TimeBase,
    exact_duration,
    is_in_rtts,
    show_number,
)

# --------------------------------------------------------------------------------------------------
# The keys of a transport whose kind an option changes: each kind takes those that it knows.


_TRANSPORT, _KIND = "transport", "transport.kind"
_KINDS = kinds_of(get_args(get_args(Transport)[0]))


def with_keys_of_its_kind(original: Document, document: Document, *, swept: bool) -> Document:
    """A document without the keys of its transport that only other kinds of transport know.

    A key of the file stays if the kind is that of the file, or declares the key alike. A key that
    an option gives stays unless kinds are swept: it is for those that know it then. A key that no
    kind knows stays, and is an error.

    Args:
        original: the document of the file.
        document: the same with the values of `--set` and `--sweep`.
        swept: whether kinds are swept.
    """
    before, after = (each.data.get(_TRANSPORT) for each in (original, document))
    if not isinstance(after, dict) or (kind := _kind(after)) is None:
        return document
    file_kind = _kind(before) if isinstance(before, dict) else None
    if file_kind is None or _TRANSPORT in document.origins:
        file_kind = kind

    def stays(key: str) -> bool:
        if key == "kind" or not any(key in other.model_fields for other in _KINDS.values()):
            return True
        if f"{_TRANSPORT}.{key}" in document.origins:
            return key in kind.model_fields or not swept
        return kind is file_kind or _declared_alike(key, kind, file_kind)

    kept = {key: value for key, value in after.items() if stays(key)}
    return replace(document, data={**document.data, _TRANSPORT: kept})


def sweeps_kinds(swept: Collection[str]) -> bool:
    """Whether a sweep over some key paths is one over kinds of transport."""
    return _TRANSPORT in swept or _KIND in swept


def taken(settings: Mapping[str, Any], scenario: Scenario) -> dict[str, Any]:
    """Those of some settings whose keys the transport of a scenario knows, or that are others."""
    known = type(scenario.transport).model_fields
    return {path: value for path, value in settings.items() if _key(path) in (None, *known)}


def require_taken(
    option: str, settings: Mapping[str, Any], scenarios: Collection[Scenario]
) -> None:
    """Check that each key of a transport is known to one of several transports at least.

    Raises:
        InputError: it is known to none.
    """
    for path in settings:
        if not any(path in taken({path: None}, scenario) for scenario in scenarios):
            kinds = ", ".join(dict.fromkeys(scenario.transport.kind for scenario in scenarios))
            raise InputError.of(option, path, f"a key of one of the transports ({kinds})")


def _kind(transport: Mapping[str, Any]) -> type[BaseModel] | None:
    return _KINDS.get(str(transport.get("kind", Mrc().kind)))


def _key(path: str) -> str | None:
    """The key of the transport that a path names; None if it names something else."""
    part, _, key = path.partition(".")
    return key.partition(".")[0] if part == _TRANSPORT and key else None


def _declared_alike(key: str, kind: type[BaseModel], other: type[BaseModel]) -> bool:
    first, second = kind.model_fields.get(key), other.model_fields.get(key)
    if first is None or second is None:
        return False
    return (first.annotation, first.metadata) == (second.annotation, second.metadata)


Dilation = Callable[[Scenario], float]
"""Finds the dilation for `auto`, given the scenario at the nominal dilation."""

_DURATION = str(Scenario.model_fields["duration"].default // NS_PER_S) + " s"
"""Of a scenario that does not say how long it is."""

_HOST = re.compile(r"h\d{1,9}", re.ASCII)

_STAND_IN = Topology(name="none", planes=1, t0_per_plane=1, t1_per_plane=1, hosts_per_t0=1)
"""In place of a topology that is wrong, so that the scenario's other keys are checked as well."""


def nominal(_: Scenario) -> float:
    """The dilation for `auto` where nothing runs on this machine."""
    return NOMINAL_DILATION


def load_scenario(
    name_or_path: str,
    dilation: Dilation = nominal,
    settings: Mapping[str, Any] = MappingProxyType({}),
    swept: Mapping[str, Any] = MappingProxyType({}),
) -> Scenario:
    """Load a scenario and its topology: one that ships, by name, or a YAML file by path.

    Its `topology` is a name, a path relative to the scenario's file, or a mapping: of all keys of
    a topology, or of `base` (a name or path) and the keys that differ from it.

    Args:
        name_or_path: the scenario.
        dilation: called where the topology's dilation is `auto`.
        settings: values by key path (`transport.evs`) that replace those of the file: `--set`.
        swept: the values of one case of a `--sweep`, which replace those of `settings`.

    Raises:
        InputError: there is no such scenario, a value is wrong, or two do not fit together.
    """
    return scenario_of(read_document(find_scenario(name_or_path)), dilation, settings, swept)


def load_recorded(file: Path) -> Scenario:
    """Load a scenario that the testbed wrote for itself, in JSON, as a run's record has it.

    Only such a file may have the source of own code; files that a person names name a class.

    Raises:
        InputError: it is no such file, or a value is wrong.
    """
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError.of(str(file), str(error), "a scenario that the testbed wrote") from None
    if not isinstance(data, dict):
        raise InputError.of(str(file), "no mapping", "a scenario that the testbed wrote")
    return recorded_scenario(data, file)


def recorded_scenario(data: Mapping[str, Any], file: Path | None = None) -> Scenario:
    """The scenario of what the testbed wrote of it for itself; otherwise as `load_recorded`."""
    transport = recorded_code(data.get("transport", {}))
    return scenario_of(Document(file, {**data, "transport": transport}))


def scenario_of(
    document: Document,
    dilation: Dilation = nominal,
    settings: Mapping[str, Any] = MappingProxyType({}),
    swept: Mapping[str, Any] = MappingProxyType({}),
) -> Scenario:
    """Make a scenario of a document that was read before; otherwise as `load_scenario`.

    Raises:
        InputError: a value is wrong, or two do not fit together.
    """
    return _loaded(document, dilation, settings, swept)[0]


def load_with_document(
    name_or_path: str,
    dilation: Dilation = nominal,
    settings: Mapping[str, Any] = MappingProxyType({}),
    swept: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[Scenario, Document]:
    """Load a scenario as `load_scenario`, with its document in which the options have set values.

    Raises:
        InputError: there is no such scenario, a value is wrong, or two do not fit together.
    """
    return _loaded(read_document(find_scenario(name_or_path)), dilation, settings, swept)


def _loaded(
    document: Document, dilation: Dilation, settings: Mapping[str, Any], swept: Mapping[str, Any]
) -> tuple[Scenario, Document]:
    original = document
    for option, values in (("--set", settings), ("--sweep", swept)):
        for path, value in values.items():
            document = _with_setting(document, path, value, option)
    document = with_keys_of_its_kind(original, document, swept=sweeps_kinds(swept))
    document = with_own_code(document)
    data, topology_problems = dict(document.data), list[Problem]()
    try:
        data["topology"] = topology_of_scenario(document)
    except InputError as error:
        topology_problems += error.problems
        data["topology"] = _STAND_IN
    document = _with_files(document, data)
    scenario = _scenario(document, data, topology_problems)
    if is_auto(data["topology"]):
        data["topology"] = with_dilation(data["topology"], dilation(scenario))
        scenario = _scenario(document, data, [])
    return scenario, document


def _with_files(document: Document, data: dict[str, Any]) -> Document:
    """Read the files that workloads name into `data`; the document says where what comes from."""
    for where, parent in _places_of_workloads(data):
        workload = parent.get("workload")
        if not isinstance(workload, dict):
            continue
        if isinstance(workload.get("matrix"), str):
            matrix = read_matrix(_file_of_scenario(document, workload["matrix"], f"{where}.matrix"))
            places = {f"{where}.{key}": place for key, place in matrix.places.items()}
            places |= _cut(data, matrix.cut)
            document = replace(document, origins=document.origins | places)
            workload = {**workload, "matrix": matrix.transfers}
            if matrix.triggers:
                workload["triggers"] = matrix.triggers
        if isinstance(workload.get("file"), str):
            nics = _nics_per_node(data["topology"])
            workload = {**workload, **_operations(document, workload, where, nics)}
        if isinstance(workload.get("directory"), str):
            directory = _directory_of_programs(document, workload["directory"], where)
            workload = {**workload, "directory": directory}
        parent["workload"] = workload
    return document


def _operations(
    document: Document, workload: dict[str, Any], where: str, nics: int
) -> dict[str, Any]:
    """What the file of a workload has, if it is of a kind that has one; `nics` of each node.

    What a run has recorded may be for nodes of other NICs.
    """
    named, groups = workload["file"], workload.get("groups")
    if "operations" in workload:
        try:
            graph = Graph.unpacked(workload["operations"])
        except (AttributeError, ValueError):
            return {}  # whoever checks the key says so
    elif workload.get("kind") == "goal":
        graph = read_goal(_file_of_scenario(document, named, f"{where}.file"))
    elif workload.get("kind") == "chakra":
        groups_file = None
        if isinstance(groups, str):
            groups_file = _file_of_scenario(document, groups, f"{where}.groups")
        prefix = relative_to_here(document.directory / named)
        graph = read_chakra(prefix, groups_file, lambda rank: divmod(_host(workload, rank), nics))
    else:
        return {}
    if nics > 1 or graph.passed():
        graph.join([_host(workload, rank) // nics for rank in range(len(graph.hosts))])
    return {"operations": graph}


def _nics_per_node(topology: object) -> int:
    """How many hosts are one node, as the data of a topology say; 1 if they say nothing right."""
    nics = topology.get("nics_per_node") if isinstance(topology, dict) else None
    return nics if type(nics) is int and nics > 0 else 1


def _host(workload: Mapping[str, Any], rank: int) -> int:
    """The number of a rank's host; the rank's own if its host is none."""
    hosts = workload.get("hosts")
    name = hosts[rank] if isinstance(hosts, list) and rank < len(hosts) else None
    return int(name[1:]) if isinstance(name, str) and _HOST.fullmatch(name) else rank


def _cut(data: dict[str, Any], links: Mapping[str, str]) -> dict[str, str]:
    """Cut links for as long as the run takes; returns the key path of each fault, and its place."""
    lasting = {"at": "0 s", "for": data.get("duration", _DURATION)}
    timeline = data.get("timeline", [])
    if not links or not isinstance(timeline, list):
        return {}
    once: dict[str, str] = {}  # TOR and AGG may name the same link
    for place, link in links.items():
        once.setdefault(link, place)
    cuts = [{"kind": "cut", "target": link, **lasting} for link in once]
    data["timeline"] = [*timeline, *cuts]
    return {f"timeline[{i}]": place for i, place in enumerate(once.values(), len(timeline))}


def _with_setting(document: Document, path: str, value: Any, option: str) -> Document:
    """A document with another value; what is only named becomes a mapping first."""
    name = document.data.get("topology")
    if path.startswith("topology.") and isinstance(name, str):
        document = replace(document, data={**document.data, "topology": {BASE: name}})
    return with_value(opened(document, path), path, value, option)


def _scenario(
    document: Document, data: dict[str, Any], topology_problems: list[Problem]
) -> Scenario:
    """The scenario of some data.

    Raises:
        InputError: with the problems of its topology and of all other keys; if there are none, with
            those between its values.
    """
    data = {**data, "topology": with_dilation(data["topology"])}
    rtt = _round_trip(data["topology"])
    scenario = validated(Scenario, data, document, topology_problems, rtt)
    raise_any(map(document.located, problems(scenario)))
    return scenario


def _round_trip(topology: object) -> BaseRtt:
    """The base RTT of a topology, which is the unit RTT of times; any if it is wrong."""
    try:
        return Topology.model_validate(topology).round_trip
    except ValidationError:
        return _STAND_IN.round_trip


def _places_of_workloads(data: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The key path of each workload, and a mapping of its own that holds it."""
    yield "workload", data
    jobs = data.get("jobs")
    if isinstance(jobs, list):
        data["jobs"] = [{**job} if isinstance(job, dict) else job for job in jobs]
        for i, job in enumerate(data["jobs"]):
            if isinstance(job, dict):
                yield f"jobs[{i}].workload", job


def _directory_of_programs(document: Document, named: str, where: str) -> str:
    """Where programs are started: relative to the scenario, or to here where an option says so."""
    given_here = {f"{where}.directory", where, "jobs"} & document.origins.keys()
    return str((Path() if given_here else document.directory).joinpath(named).absolute())


def _file_of_scenario(document: Document, named: str, key: str) -> Path:
    file = document.directory / named
    if not is_there(file, Path.is_file):
        where = document.where(key)
        expected = "a file, relative to the scenario's directory"
        found = f"{file}, which {'is no file' if is_there(file) else 'does not exist'}"
        raise InputError.of(where, found, expected)
    return relative_to_here(file)


# --------------------------------------------------------------------------------------------------
# The times that a scenario's file has: on which clock, and how long in each unit.


_MANY = 10_000


@dataclass(frozen=True, slots=True)
class WrittenTime:
    """A time that the file or an option gives.

    Attributes:
        key: its key path.
        text: as it is written.
        clock: the clock that it is in.
        real_ns: at full speed, in ns.
        emulated_ns: during an emulated run, in ns.
        rtts: in base RTTs.
    """

    key: str
    text: str
    clock: TimeBase
    real_ns: float
    emulated_ns: int
    rtts: float

    def __str__(self) -> str:
        """It in words, such as `4 s: emulated, 30.6 RTT, 400 us real`."""
        shown = f"{self.rtts:,.0f}" if self.rtts >= _MANY else show_number(self.rtts)
        rtts, real = f"{shown} RTT", f"{exact_duration(round(self.real_ns))} real"
        emulated = f"{exact_duration(self.emulated_ns)} emulated"
        if is_in_rtts(self.text):
            return f"{self.text} ({emulated}, {real})"
        if self.clock is EMULATED:
            return f"{self.text} {self.clock.name} ({rtts}, {real})"
        return f"{self.text} {self.clock.name} ({rtts}, {emulated})"


def written_times(scenario: Scenario, document: Document) -> Iterator[WrittenTime]:
    """The times of a scenario that its document gives; those of the topology are left out."""
    rtt = scenario.topology.round_trip
    for key, time_ns, clock in times_in(scenario):
        text = document.texts.get(key)
        if text is None or key.startswith("topology."):
            continue
        dilation = scenario.topology.dilation
        emulated_ns = time_ns if clock is EMULATED else round(time_ns * dilation)
        yield WrittenTime(
            key, text, clock, emulated_ns / dilation, emulated_ns, emulated_ns / rtt.emulated_ns
        )


def time_remarks(scenario: Scenario, document: Document) -> Iterator[Remark]:
    """Times that stretch with the dilation beside times that do not."""
    times = [time for time in written_times(scenario, document) if time.emulated_ns]
    emulated = [time for time in times if time.clock is EMULATED]
    in_rtts = [time.key for time in emulated if is_in_rtts(time.text)]
    others = [time.key for time in emulated if not is_in_rtts(time.text)]
    if document.texts.get("duration") is None:
        others.insert(0, "duration (by default)")
    if in_rtts and others:
        what = f"in base RTTs, but not {few(others)}: at another dilation they no longer fit"
        yield Remark(few(in_rtts), f"{what}; write all of them in RTT")


# --------------------------------------------------------------------------------------------------
# Faults injected by hand, from JSON.


DEFAULT_LENGTH = "10 min"
"""How long a fault injected by hand lasts if the request says nothing and nobody heals it."""


class _Request(Part):
    """The data of a request to inject a fault."""

    fault: Fault


def load_fault(text: str, topology: Topology) -> Fault:
    """Read a fault that is to begin now: an entry of a timeline without `at`, `for` optional.

    Raises:
        InputError: it is wrong.
    """
    example = '{"kind": "cut", "target": "p0"}'
    document = parse_request(text, "fault", "a fault in JSON", example)
    entry = document.data["fault"]
    if isinstance(entry, dict):
        ends_itself = entry.get("kind") == "kill" or "count" in entry
        entry = {"at": "0 s", **({} if ends_itself else {"for": DEFAULT_LENGTH}), **entry}
    fault = validated(_Request, {"fault": entry}, document, rtt=topology.round_trip).fault
    problems = [*single_fault_problems(topology, fault, "fault")]
    repeats = isinstance(fault, TemporaryFault) and fault.every is not None
    given = {"at": bool(fault.at), "every": repeats, "after": fault.after is not None}
    for key in (key for key, is_given in given.items() if is_given):
        where = f"fault.{key}"
        expected = "no such key: a fault injected by hand begins now, once"
        problems.append(Problem(where, document.texts.get(where, str(fault.after)), expected))
    raise_any(map(document.located, problems))
    return fault
