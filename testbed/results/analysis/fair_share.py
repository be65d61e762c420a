"""Max-min fair rates by water-filling.

An allocation is max-min fair if no flow can have more without a flow that has no more than it
having less. Where each unit of a flow's rate loads links in fixed proportions, water-filling finds
it: all rates rise together until a link is full, the flows on it stop there, the others go on
(Bertsekas and Gallager, Data Networks, 6.5.2).
"""

from dataclasses import dataclass, replace

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


# --------------------------------------------------------------------------------------------------
# A smaller problem with the same rates: one flow, path and link for all that are alike.
#
# In a Clos most T1s of a plane are alike, and so are most planes. Colour refinement finds what is:
# links begin with a colour for each capacity; flows, paths and links are split by the colours of
# their neighbours, until nothing is split any more. A linear program with one variable and one
# constraint for each colour has the same optimum (Grohe, Kersting, Mladenov and Selman, Dimension
# Reduction via Colour Refinement, ESA 2014). Max-min fair rates are unique, so flows of a colour
# have the same.


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

    Neighbours are compared by the sum of 64-bit hashes of their colours: that two sets of a fabric
    with a million paths have the same one is as likely as 1 in 10^7.

    Args:
        colours: before.
        owner: for each neighbour, whose it is: a place in `colours`.
        neighbour: for each neighbour, its colour.
    """
    of_neighbour = _hashed(np.arange(neighbour.max(initial=0) + 1, dtype=np.uint64))
    keys = _hashed(_hashed(colours.astype(np.uint64)))  # twice, unlike a neighbour's
    np.add.at(keys, owner, of_neighbour[neighbour])
    return np.unique(keys, return_inverse=True)[1]


def _hashed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64 of each number (Steele, Lea and Flood, OOPSLA 2014)."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


# --------------------------------------------------------------------------------------------------
# Max-min fair rates of flows that may split over their paths in any proportion.
#
# A linear program, solved by HiGHS: the least rate of all flows is made as large as possible; the
# flows that cannot have more keep it; the same is repeated for the others (Nace and Pioro, Max-Min
# Fairness and Its Applications to Routing and Load-Balancing, IEEE Communications Surveys 10(4),
# 2008, algorithm 1). What is alike in it is solved once (`symmetry.py`).


BINDING = 1e-7
"""A flow can have no more if its constraint has at least this dual value; they add up to 1."""


def ideal_rates(
    flows: int, path_flow: NDArray[np.intp], loads: Loads, capacities: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The max-min fair rate of each flow with the best split over its paths.

    Args:
        flows: the number of flows.
        path_flow: for each path the flow that may use it.
        loads: what each path puts on which links; its `flows` are numbers of paths.
        capacities: of each link.

    Returns:
        A rate for each flow, in the unit of the capacities; 0 for a flow without a path.
    """
    alike, number = reduced(Split(flows, path_flow, loads, capacities))
    return _rates(alike)[number]


def _rates(split: Split) -> NDArray[np.float64]:
    """The rate of each flow, all of which are part of the program."""
    rates = np.zeros(split.flows)
    unit = float(split.capacities.max(initial=0.0))
    if unit == 0:
        return rates
    scaled = replace(split, capacities=split.capacities / unit)
    open_flows = set(split.path_flow.tolist())
    while open_flows:
        least, bound = _raise(rates, open_flows, scaled)
        for flow in bound:
            rates[flow] = least
        open_flows -= bound
    return rates * unit


def _raise(
    rates: NDArray[np.float64], open_flows: set[int], split: Split
) -> tuple[float, set[int]]:
    """The greatest least rate of the open flows, and those of them that can have no more."""
    import highspy  # noqa: PLC0415 - takes half a second, and few runs need it

    loads, paths = split.loads, len(split.path_flow)
    solver = highspy._core._Highs()  # noqa: SLF001 - exported; `Highs()` prints a banner
    solver.setOptionValue("output_flag", False)
    program = highspy.HighsLp()
    flows, links = len(rates), len(split.capacities)
    # Columns: the rate of each path, then the least rate. Rows: each link, then each flow.
    program.num_col_, program.num_row_ = paths + 1, links + flows
    program.col_cost_ = np.append(np.zeros(paths), -1.0)
    program.col_lower_ = np.zeros(paths + 1)
    program.col_upper_ = np.full(paths + 1, highspy.kHighsInf)
    is_open = np.array([flow in open_flows for flow in range(flows)])
    program.row_lower_ = np.append(
        np.full(links, -highspy.kHighsInf), np.where(is_open, 0.0, rates)
    )
    program.row_upper_ = np.append(split.capacities, np.full(flows, highspy.kHighsInf))
    entries = np.concatenate(
        [
            np.stack([loads.flows, loads.links, loads.shares]),
            np.stack([np.arange(paths), links + split.path_flow, np.ones(paths)]),
            np.stack(
                [
                    np.full(len(open_flows), paths),
                    links + np.flatnonzero(is_open),
                    np.full(len(open_flows), -1.0),
                ]
            ),
        ],
        axis=1,
    )
    entries = entries[:, np.argsort(entries[0], kind="stable")]
    matrix = program.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kColwise
    matrix.start_ = np.searchsorted(entries[0], np.arange(paths + 2)).astype(np.int32)
    matrix.index_ = entries[1].astype(np.int32)
    matrix.value_ = entries[2]
    solver.passModel(program)
    solver.run()
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise ArithmeticError(f"HiGHS found no fair shares: {solver.modelStatusToString(status)}")
    solution = solver.getSolution()
    duals = np.abs(np.array(solution.row_dual)[links:])
    return float(solution.col_value[paths]), {flow for flow in open_flows if duals[flow] > BINDING}
