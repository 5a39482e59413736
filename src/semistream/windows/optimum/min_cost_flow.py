"""Minimum-cost flow by OR-tools: takes arrays of arcs, and returns the flow of each arc."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from semistream.errors import InvalidArgument, MissingPackage
from semistream.kernels.array_types import Int32s, Int64s

MOST_NODES = 2**31 - 1  # the solver numbers nodes and arcs with 32 bits
_LEAST_EXPONENT = -1022  # of doubles with full precision
_COST_BITS = 62  # the solver multiplies costs by the number of nodes, in 64 bits


def least_cost_flow(
    tails: Int32s, heads: Int32s, capacities: Int64s, costs: Int64s, supplies: Int64s
) -> tuple[Int64s, int]:
    """Return the flow of each arc that carries all ``supplies`` away at the least cost, and that cost.

    ``supplies`` has one entry per node: the flow that enters there or, if negative, leaves. Flows are whole numbers:
    with whole capacities and supplies there is a whole optimum (WINDOW, Theorem 4).

    >>> arrays = [np.array(a, dtype) for a, dtype in (([0, 0], np.int32), ([1, 1], np.int32), ([1, 9], np.int64))]
    >>> flows, cost = least_cost_flow(*arrays, costs=np.array([1, 3]), supplies=np.array([2, -2]))
    >>> flows.tolist(), cost
    ([1, 1], 4)
    """
    if max(supplies.size, tails.size) > MOST_NODES:
        raise InvalidArgument(
            f"The flow graph has {supplies.size} nodes and {tails.size} arcs; the solver takes at most {MOST_NODES}. "
            "Give a shorter part of the streams."
        )
    solver = _solver()
    solver.add_arcs_with_capacity_and_unit_cost(tails, heads, capacities, costs)
    solver.set_nodes_supplies(np.arange(supplies.size, dtype=np.int32), supplies)
    status = solver.solve()
    if status != solver.OPTIMAL:
        raise InvalidArgument(
            f"The flow graph of {supplies.size} nodes and {tails.size} arcs has no solution ({status.name}); costs are "
            f"from {costs.min(initial=0)} to {costs.max(initial=0)}. Give smaller weights, or a shorter part "
            "of the streams."
        )
    return solver.flows(np.arange(tails.size, dtype=np.int32)), int(solver.optimal_cost())


def whole_costs(values: npt.NDArray[Any], nodes: int) -> tuple[Int64s, float]:
    """Return ``values`` as integers that the solver accepts in a graph of ``nodes``, and the worth of one unit.

    Whole numbers stay as they are. Others become multiples of a power of two, the finest that fits. Multiples of it
    stay exact, and no other value changes by more than half of it.

    >>> costs, worth = whole_costs(np.array([0.5, -1.25]), nodes=10)
    >>> (costs * worth).tolist()
    [0.5, -1.25]
    """
    bits = _COST_BITS - max(2, nodes).bit_length() - 2
    largest = float(np.abs(values).max(initial=0))
    if not np.isfinite(largest):
        raise InvalidArgument("A weight or a distance is not finite; give finite numbers.")
    if values.dtype.kind in "iub":
        if largest >= 2.0**bits:
            raise InvalidArgument(
                f"A weight of {largest:.0f} is too large for a graph of {nodes} nodes: it must be below 2**{bits}. "
                "Divide all weights by a number."
            )
        return values.astype(np.int64), 1.0
    finest = max(int(np.frexp(largest)[1]) - min(bits, 52), _LEAST_EXPONENT)
    worth = 2.0**finest if largest else 1.0
    return np.rint(values / worth).astype(np.int64), worth


def _solver() -> Any:
    try:
        from ortools.graph.python.min_cost_flow import SimpleMinCostFlow  # noqa: PLC0415 - optional and large
    except ImportError as missing:
        raise MissingPackage(
            "OR-tools is not installed; it computes the optimum of a window join and the distances between tables. "
            "Install it: pip install 'semistream[windows]'"
        ) from missing
    return SimpleMinCostFlow()
