"""The EVs of a queue pair, as the MRC core knows them: a path is a number to it, equal or not."""

from collections.abc import Iterable

from testbed.model.fabric.ev_set import EvChoice
from testbed.mrc import EvEntry


def ev_entries(evs: Iterable[EvChoice]) -> tuple[EvEntry, ...]:
    """The entries of an EV profile; EVs of one path have one key."""
    return tuple(
        EvEntry(ev.value, ev.path.plane, ev.path.plane << 16 | (ev.path.t1 or 0), ev.active)
        for ev in evs
    )
