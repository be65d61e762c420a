"""`testbed validate`, `list` and `schema`: check a file; what ships; JSON Schemas for editors."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli.options import Json, SetKeys, settings_of
from testbed.cli.screen import plain_table, print_json, print_table, print_warning, stdout
from testbed.model.errors import ExitStatus, InputError, Remark
from testbed.results.whole_file import writing

if TYPE_CHECKING:
    from testbed.model.fabric.topology import Topology
    from testbed.model.files.reading import Document
    from testbed.model.scenario import Scenario


def validate(
    name: Annotated[
        str, typer.Argument(metavar="FILE|NAME", help="Name or file of a scenario or topology.")
    ],
    set_: SetKeys = None,
    as_json: Json = False,
) -> None:
    """Check a scenario or a topology, without root.

    Shows what it describes. Of each time of a scenario it says on which clock it is: emulated, as
    it passes during the run, or real, as at full speed.
    """
    from testbed.model.checks import remarks
    from testbed.model.files.catalog import find_scenario, find_topology
    from testbed.model.files.scenarios import time_remarks
    from testbed.model.files.topologies import load_topology

    kind, settings = _kind(name), settings_of(set_)
    if kind == "topology" and settings:
        remedy = "name a scenario, and set topology.KEY"
        raise InputError.of("--set", f"{name}, a topology", "a scenario", remedy)
    warnings: tuple[Remark, ...] = ()
    try:
        if kind == "scenario":
            file, (scenario, document, facts) = find_scenario(name), _scenario(name, settings)
            warnings = (*remarks(scenario), *time_remarks(scenario, document))
        elif kind == "study":
            expected, remedy = "a scenario or a topology", f"testbed study {name} --dry-run"
            raise InputError.of(name, "a study", expected, remedy)
        else:
            file, facts = find_topology(name), _topology_facts(load_topology(name))
    except InputError as error:
        if as_json:
            problems = [asdict(problem) for problem in error.problems]
            print_json({"kind": kind, "valid": False, "problems": problems})
            raise typer.Exit(ExitStatus.WRONG_INPUT) from None
        raise
    if as_json:
        remarks_json = [asdict(remark) for remark in warnings]
        print_json({"kind": kind, "valid": True, "facts": facts, "warnings": remarks_json})
        return
    stdout().print(f"{file}: a valid {kind}")
    for key, value in facts.items():
        stdout().print(f"  {key}: {value}" if isinstance(value, str | int) else f"  {key}:")
        for part, text in value.items() if isinstance(value, dict) else ():
            stdout().print(f"    {part}: {text}")
    for remark in warnings:
        print_warning(f"{file}: {remark}")


def _kind(name: str) -> str:
    """Whether a name or file is that of a scenario, of a topology or of a study."""
    from testbed.model.files.catalog import SCENARIOS, TOPOLOGIES, files_in, is_path
    from testbed.model.files.htsim_topologies import SUFFIX
    from testbed.model.files.reading import read_document

    if name.endswith(SUFFIX):
        return "topology"
    if not is_path(name):
        only_topologies = files_in(TOPOLOGIES).keys() - files_in(SCENARIOS)
        return "topology" if name in only_topologies else "scenario"
    try:
        keys = set(read_document(Path(name)).data)
    except InputError:
        return "scenario"  # its error comes when it is loaded
    if keys & {"topology", "workload"}:
        return "scenario"
    return "topology" if "planes" in keys else "study" if "cases" in keys else "scenario"


def _scenario(name: str, settings: dict[str, Any]) -> "tuple[Scenario, Document, dict[str, Any]]":
    """A scenario, its document and its facts; finds the dilation for `auto` as a run does."""
    from testbed.emulation.experiment.machine import load_capacity
    from testbed.model.files.scenarios import load_with_document, nominal, written_times

    auto = {}

    def dilation(scenario: "Scenario") -> float:
        capacity = load_capacity()
        smallest = nominal(scenario) if capacity is None else capacity.fitting_dilation(scenario)
        auto["dilation"] = (
            f"auto, chosen by the first run; {smallest:g} is assumed above"
            if capacity is None
            else f"auto, {smallest:g} on this machine"
        )
        return smallest

    scenario, document = load_with_document(name, dilation, settings)
    times = {time.key: str(time) for time in written_times(scenario, document)}
    facts = _scenario_facts(scenario) | auto | ({"times": times} if times else {})
    return scenario, document, facts


def _load(scenario: "Scenario") -> str:
    from testbed.emulation.experiment.machine import load_capacity, show_load

    capacity = load_capacity()
    if capacity is None:
        return "unknown: the first run measures what this machine carries"
    load = f"{show_load(capacity.load(scenario))} this machine's {capacity.cpus:g} CPUs"
    return f"about {load} for testbed run; testbed simulate has no such limit"


def _topology_facts(topology: "Topology") -> dict[str, Any]:
    from testbed.model.units import exact_duration, show_number, show_rate

    return {
        "topology": topology.name,
        "hosts": topology.host_count,
        **({"nodes": topology.nodes_in_words} if topology.nics_per_node > 1 else {}),
        "switches": topology.planes * (topology.t0_per_plane + topology.t1_per_plane),
        "links": topology.link_count,
        "paths between racks": topology.planes * topology.t1_per_plane,
        "port rate": f"{show_rate(topology.port_rate)}, "
        f"emulated {show_rate(topology.port_rate_bps)}",
        "dilation": f"{topology.dilation:,g}",
        "round trip": f"{exact_duration(topology.round_trip.real_ns)}, "
        f"emulated {exact_duration(topology.round_trip.emulated_ns)}",
        "BDP of a port": f"{show_number(topology.bdp_packets)} packets",
    }


def _code(scenario: "Scenario") -> dict[str, Any]:
    """The classes and the commands that a scenario executes."""
    return {"executes": scenario.executes} if scenario.executes else {}


def _scenario_facts(scenario: "Scenario") -> dict[str, Any]:
    from testbed.model.units import exact_duration

    return {
        "scenario": scenario.name,
        **_topology_facts(scenario.topology),
        "flows": scenario.flow_count,
        "faults": len(scenario.timeline),
        **_code(scenario),
        "duration": exact_duration(scenario.duration),
        "load": _load(scenario),
    }


def list_(as_json: Json = False) -> None:
    """List the scenarios and topologies that ship with the project."""
    from testbed.model.files.catalog import SCENARIOS, TOPOLOGIES

    kinds = {"scenarios": _descriptions(SCENARIOS), "topologies": _descriptions(TOPOLOGIES)}
    if as_json:
        print_json(
            {
                kind: [{"name": name, "description": text} for name, text in descriptions.items()]
                for kind, descriptions in kinds.items()
            }
        )
        return
    for kind, descriptions in kinds.items():
        table = plain_table(kind, "")
        table.columns[1].overflow = "fold"
        for name, text in descriptions.items():
            table.add_row(name, text)
        print_table(table)
        stdout().print()


def _descriptions(directory: Path) -> dict[str, str]:
    """The description of each file by its name; for a wrong file the first problem."""
    from testbed.model.files.catalog import files_in
    from testbed.model.files.reading import read_document

    descriptions = {}
    for name, file in files_in(directory).items():
        try:
            text = str(read_document(file).data.get("description", ""))
        except InputError as error:
            text = f"wrong: {error.problems[0]}"
        descriptions[name] = " ".join(text.split())
    return descriptions


def schema(
    directory: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where to write; default: the project's docs/schema."),
    ] = None,
) -> None:
    """Write the JSON Schemas of scenarios, topologies and results."""
    from testbed.installation import PROJECT
    from testbed.live.stream.records import stream_schema
    from testbed.model.json_schema import scenario_schema, summary_schema, topology_schema

    place = PROJECT / "docs" / "schema" if directory is None else directory
    schemas = {
        "topology": topology_schema(),
        "scenario": scenario_schema(),
        "summary": summary_schema(),
        "stream": stream_schema(),
    }
    for name, content in schemas.items():
        file = place / f"{name}.json"
        with writing("--directory", file):
            place.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        stdout().print(f"wrote {file}")
