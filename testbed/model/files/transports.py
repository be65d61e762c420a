"""The keys of a transport whose kind an option changes: each kind takes those that it knows."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, get_args

from pydantic import BaseModel

from testbed.model.errors import InputError
from testbed.model.files.documents import Document
from testbed.model.part import kinds_of
from testbed.model.scenario import Scenario
from testbed.model.transport import Mrc, Transport

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
