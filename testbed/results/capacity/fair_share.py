"""Max-min fair rates by water-filling.

An allocation is max-min fair if no flow can have more without a flow that has no more than it
having less. Where each unit of a flow's rate loads links in fixed proportions, water-filling finds
it: all rates rise together until a link is full, the flows on it stop there, the others go on
(Bertsekas and Gallager, Data Networks, 6.5.2).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FULL = 1e-9
"""A link is full if at most this share of its capacity is left, as rounding may leave it."""


@dataclass(frozen=True, slots=True)
class Loads:
    """How flows load links: entry i says that flow `flows[i]` loads link `links[i]`.

    Attributes:
        flows: numbers of flows, from 0.
        links: numbers of links, from 0; a pair of flow and link may have several entries, which
            add up.
        shares: what each bit/s of the flow's rate puts on the link, in bits/s.
    """

    flows: NDArray[np.intp]
    links: NDArray[np.intp]
    shares: NDArray[np.float64]


def max_min_rates(flows: int, loads: Loads, capacities: NDArray[np.float64]) -> NDArray[np.float64]:
    """The max-min fair rate of each flow, in the unit of the capacities.

    Args:
        flows: the number of flows.
        loads: what each flow puts on which links.
        capacities: of each link.

    Returns:
        A rate for each flow; 0 for a flow that loads no link, which has no path.
    """
    rates = np.zeros(flows)
    rising = np.zeros(flows, dtype=bool)
    rising[loads.flows] = True
    spare = capacities.astype(np.float64)
    left = loads
    while rising.any():
        demand = np.bincount(left.links, left.shares, len(spare))
        used = demand > 0
        step = max(float((spare[used] / demand[used]).min()), 0.0)
        rates[rising] += step
        spare -= step * demand
        full = used & (spare <= FULL * capacities)
        rising[left.flows[full[left.links]]] = False
        still_rising = rising[left.flows]
        left = Loads(left.flows[still_rising], left.links[still_rising], left.shares[still_rising])
    return rates
