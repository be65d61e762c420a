"""How well the Clustermapper located the faults of links."""

from typing import Annotated

from testbed.model.summary.metric import Metric, MetricGroup, View
from testbed.model.summary.unit import IN_RTT, IN_S, SHARE, MaybeNever, Time


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

    after: Annotated[Time | None, Metric(forms=(IN_S,), views=View.USUAL)] = None
    """From the fault's effect to the first right accusation. Never: there was none."""

    whole: Annotated[bool, Metric(title="all its links", views=View.USUAL)]
    """Whether all links of the fault were accused."""

    exact: Annotated[bool, Metric(title="exactly its directions", views=View.USUAL)]
    """Whether the suspects when it healed, or the last before that, are its directions."""

    loss: Annotated[float | None, Metric(SHARE, title="loss measured", views=View.USUAL)] = None
    """Share of packets that each direction of `named` lost while the fault was in force, by the
    probes across it that met no other fault. Null: there were none."""


class Localisation(MetricGroup):
    """The Clustermapper's accusations, compared with the faults of links.

    An accusation is right if it names links of a fault in force, and no others.
    """

    probes: Annotated[int, Metric()]
    """Probes that were sent."""

    probes_lost: Annotated[int, Metric()]
    """Probes that were lost."""

    accusations: Annotated[int, Metric()]
    """Accusations that were raised."""

    accusations_right: Annotated[int, Metric()]
    """Accusations that were right."""

    accusations_wrong: Annotated[int, Metric()]
    """Accusations that were wrong."""

    precision: Annotated[float | None, Metric()] = None
    """Share of accusations that were right. Null: there were none."""

    recall: Annotated[float | None, Metric()] = None
    """Share of faults that were named. Null: there were none."""

    exact: Annotated[float | None, Metric()] = None
    """Share of faults for which exactly their directions were named. Null: there were none."""

    naming: Annotated[Time | None, Metric(forms=(IN_S, IN_RTT))] = None
    """From a fault's effect until it was named, for the fault that took longest. Never: one was not
    named. Null: there were none."""

    naming_rounds: Annotated[MaybeNever | None, Metric()] = None
    """The same in rounds of probes."""

    faults: tuple[LocalisedFault, ...]
