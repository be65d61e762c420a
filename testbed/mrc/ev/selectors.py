"""Which path selector a queue pair has."""

from random import Random

from testbed.mrc.ev.own_selection import OwnSelection
from testbed.mrc.ev.profile import EvProfile
from testbed.mrc.ev.rotation import Rotation
from testbed.mrc.ev.selection import EvInfo, PathSelector, SelectorFactory
from testbed.mrc.ev.spray import AdaptiveSpray, BlindSpray


def selector_of(
    profile: EvProfile, rotation: Rotation, rng: Random, select: SelectorFactory | None
) -> PathSelector:
    """The selector of a queue pair: the user's own (`select`), or the profile's."""
    if select is None:
        if profile.adaptive:
            return AdaptiveSpray(rotation, rng, profile.reshuffle_rounds)
        return BlindSpray(rotation, rng)
    keys = list(dict.fromkeys(entry.path_key for entry in profile.entries))
    evs = [
        EvInfo(entry.ev, entry.plane, keys.index(entry.path_key), active=entry.active)
        for entry in profile.entries
    ]
    return OwnSelection(rotation, select(evs, rng.getrandbits(32)))
