"""JSON Schemas of topologies and scenarios, for editors, of `summary.json`, of event streams."""

from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import SchemaSerializer, core_schema

from testbed.model.fabric.topology import Topology
from testbed.model.scenario import Scenario
from testbed.model.summary import Summary
from testbed.model.summary.scopes import JOB_SCOPES, SCOPES
from testbed.model.units import CLOCK

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _AsWritten(GenerateJsonSchema):
    """Writes defaults as in a file: quantities with their unit."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        written = super().default_schema(schema)
        if written.get("type") == "string" and "default" in written:
            serializer = SchemaSerializer(schema["schema"])
            written["default"] = serializer.to_python(schema["default"], mode="json")
        return written

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - overrides
        """Omit titles, which only repeat the keys."""
        return False


def topology_schema() -> dict[str, Any]:
    return _schema(Topology, "An emulated multi-plane Clos fabric")


def scenario_schema() -> dict[str, Any]:
    """The JSON Schema of a scenario file.

    Its topology may also be a name, a path, or either with some keys changed; the keys of `expect`
    are the names of metrics.
    """
    schema = _schema(Scenario, "An experiment on an emulated fabric")
    topology = schema["properties"]["topology"]
    keys = schema["$defs"]["Topology"]["properties"]
    base = {"type": "string", "description": "name or file of a topology; other keys change it"}
    changed = {
        "type": "object",
        "properties": {"base": base, **keys},
        "required": ["base"],
        "additionalProperties": False,
    }
    schema["properties"]["topology"] = {
        "description": topology.pop("description"),
        "anyOf": [{"type": "string"}, topology, changed],
    }
    matrix = schema["$defs"]["Connections"]["properties"]["matrix"]
    schema["$defs"]["Connections"]["properties"]["matrix"] = {
        "description": matrix.pop("description"),
        "anyOf": [{"type": "string"}, matrix],
    }
    for part in ("Goal", "Chakra"):
        del schema["$defs"][part]["properties"]["operations"]
        schema["$defs"][part]["required"].remove("operations")
    for part, scopes in (("Expect", {key: key for key in SCOPES}), ("JobExpect", JOB_SCOPES)):
        bounds = schema["$defs"][part]["properties"]
        for key, scope in scopes.items():
            schema["$defs"]["Bound"] = bounds[key].pop("additionalProperties")
            bounds[key]["additionalProperties"] = False
            bounds[key]["properties"] = {
                name: {"$ref": "#/$defs/Bound", "description": quantity.metric.definition}
                for name, quantity in SCOPES[scope].quantities.items()
            }
    schema["oneOf"] = [{"required": ["workload"]}, {"required": ["jobs"]}]
    return schema


def summary_schema() -> dict[str, Any]:
    """The JSON Schema of `summary.json`."""
    return _schema(Summary, "The results of a run")


def records_schema(reader: TypeAdapter[Any], title: str) -> dict[str, Any]:
    """The JSON Schema of a line of a file in which each line is one of several records."""
    schema = reader.json_schema(mode="serialization", schema_generator=_AsWritten)
    return {"$schema": DIALECT, **schema, "title": title}


def _name_clocks(schema: Any) -> str:
    """Add to the description of each time, at any depth, which clock it is in; returns the last."""
    clock = ""
    for part in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(part, dict | list):
            clock = _name_clocks(part) or clock
    if not isinstance(schema, dict):
        return clock
    clock = schema.pop(CLOCK, clock if "anyOf" in schema else "")
    if clock and "description" in schema:
        schema["description"] += f" ({clock})"
        return ""
    return str(clock)


def _schema(model: type[BaseModel], title: str) -> dict[str, Any]:
    schema = model.model_json_schema(schema_generator=_AsWritten)
    _name_clocks(schema)
    return {"$schema": DIALECT, **schema, "title": title}
