"""A smaller problem with the same rates: one flow, path and link for all that are alike.

In a Clos most T1s of a plane are alike, and so are most planes. Colour refinement finds what is:
links begin with a colour for each capacity; flows, paths and links are split by the colours of
their neighbours, until nothing is split any more. A linear program with one variable and one
constraint for each colour has the same optimum (Grohe, Kersting, Mladenov and Selman, Dimension
Reduction via Colour Refinement, ESA 2014). Max-min fair rates are unique, so flows of a colour have
the same.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testbed.results.capacity.fair_share import Loads

Numbers = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Split:
    """Flows that may split over their paths in any proportion.

    Attributes:
        flows: the number of flows.
        path_flow: for each path the flow that may use it.
        loads: what each path puts on which links; its `flows` are numbers of paths.
        capacities: of each link.
    """

    flows: int
    path_flow: Numbers
    loads: Loads
    capacities: NDArray[np.float64]


def reduced(split: Split) -> tuple[Split, Numbers]:
    """One flow, path and link of each colour, and the number that each flow has among them.

    A path of the result stands for all paths of its colour that a flow has, and splits evenly over
    them.
    """
    flows, paths, links = _colours(split)
    loads = split.loads
    one_flow, one_path, one_link = (
        np.unique(colours, return_index=True)[1] for colours in (flows, paths, links)
    )
    path_flow = flows[split.path_flow[one_path]]
    paths_of_flow = np.bincount(paths) // np.bincount(flows)[path_flow]
    entries = np.isin(loads.links, one_link)
    path, link = paths[loads.flows[entries]], links[loads.links[entries]]
    pairs, pair = np.unique(path * len(one_link) + link, return_inverse=True)
    shares = np.zeros(len(pairs))
    np.add.at(shares, pair, loads.shares[entries] / paths_of_flow[path])
    alike = Loads(pairs // len(one_link), pairs % len(one_link), shares)
    return Split(len(one_flow), path_flow, alike, split.capacities[one_link]), flows


def _colours(split: Split) -> tuple[Numbers, Numbers, Numbers]:
    """The colour of each flow, path and link; colours are numbers from 0."""
    loads = split.loads
    links = np.unique(split.capacities, return_inverse=True)[1]
    shares, share = np.unique(loads.shares, return_inverse=True)
    flows = np.zeros(split.flows, dtype=np.intp)
    colours = 0
    while True:
        load = links[loads.links] * len(shares) + share
        paths = _split_up(flows[split.path_flow], loads.flows, load)
        links = _split_up(links, loads.links, paths[loads.flows] * len(shares) + share)
        flows = _split_up(flows, split.path_flow, paths)
        before, colours = colours, len(np.unique(flows)) + len(np.unique(links))
        if colours == before:
            return flows, paths, links


def _split_up(colours: Numbers, owner: Numbers, neighbour: Numbers) -> Numbers:
    """Split colours: two stay equal only if the same neighbours come with them.

    Args:
        colours: before.
        owner: for each neighbour, whose it is: a place in `colours`.
        neighbour: for each neighbour, its colour.
    """
    order = np.lexsort((neighbour, owner))
    ends = np.searchsorted(owner[order], np.arange(len(colours) + 1))
    ordered = neighbour[order]
    known: dict[tuple[int, bytes], int] = {}
    new = (
        known.setdefault((colour, ordered[begin:end].tobytes()), len(known))
        for colour, begin, end in zip(colours.tolist(), ends[:-1], ends[1:], strict=True)
    )
    return np.fromiter(new, dtype=np.intp, count=len(colours))
