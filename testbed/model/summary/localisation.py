"""How well the Clustermapper located the faults of links."""

from testbed.model.summary.metric import (
    Count,
    MetricGroup,
    OptionalNumber,
    OptionalTime,
    OptionalWait,
    View,
    YesNo,
)
from testbed.model.summary.unit import IN_RTT, IN_S, SHARE


class LocalisedFault(MetricGroup):
    """How the Clustermapper found one fault.

    Attributes:
        fault: its index.
        kind: its kind.
        target: its target.
        named: the last suspect accused for it; None if there was none.
    """

    fault: int
    kind: str
    target: str
    named: str | None

    after = OptionalTime((IN_S,), views=View.USUAL)
    """From the fault's effect to the first right accusation. Never: there was none."""

    whole = YesNo(title="all its links", views=View.USUAL)
    """Whether all links of the fault were accused."""

    exact = YesNo(title="exactly its directions", views=View.USUAL)
    """Whether the suspects when it healed, or the last before that, are its directions."""

    loss = OptionalNumber(SHARE, title="loss measured", views=View.USUAL)
    """Share of packets that each direction of `named` lost while the fault was in force, by the
    probes across it that met no other fault. Null: there were none."""


class Localisation(MetricGroup):
    """The Clustermapper's accusations, compared with the faults of links.

    An accusation is right if it names links of a fault in force, and no others.
    """

    probes = Count()
    """Probes that were sent."""

    probes_lost = Count()
    """Probes that were lost."""

    accusations = Count()
    """Accusations that were raised."""

    accusations_right = Count()
    """Accusations that were right."""

    accusations_wrong = Count()
    """Accusations that were wrong."""

    precision = OptionalNumber()
    """Share of accusations that were right. Null: there were none."""

    recall = OptionalNumber()
    """Share of faults that were named. Null: there were none."""

    exact = OptionalNumber()
    """Share of faults for which exactly their directions were named. Null: there were none."""

    naming = OptionalTime((IN_S, IN_RTT))
    """From a fault's effect until it was named, for the fault that took longest. Never: one was not
    named. Null: there were none."""

    naming_rounds = OptionalWait()
    """The same in rounds of probes."""

    faults: tuple[LocalisedFault, ...]
