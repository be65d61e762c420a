"""Max-min fair rates of flows that may split over their paths in any proportion.

A linear program, solved by HiGHS: the least rate of all flows is made as large as possible; the
flows that cannot have more keep it; the same is repeated for the others (Nace and Pioro, Max-Min
Fairness and Its Applications to Routing and Load-Balancing, IEEE Communications Surveys 10(4),
2008, algorithm 1). What is alike in it is solved once (`symmetry.py`).
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from testbed.results.capacity.fair_share import Loads
from testbed.results.capacity.symmetry import Split, reduced

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
