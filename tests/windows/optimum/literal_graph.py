"""The flow graph of WINDOW 4.1.1 as printed: a node for each tuple at each instant, every arc of capacity 1."""

from __future__ import annotations

from itertools import pairwise

from ortools.graph.python.min_cost_flow import SimpleMinCostFlow


def literal_optimum(r: list[int], s: list[int], window: int, memory: int, *, shared: bool) -> int:
    """The optimum for one tuple on each stream at each instant, with arcs as in Fig. 3 (and cross-arcs if shared)."""
    n = len(r)
    assert len(s) == n > memory // 2
    assert 0 < memory // 2 < window
    streams = {"r": r, "s": s}
    numbers: dict[object, int] = {}
    solver = SimpleMinCostFlow()

    def node(name: object) -> int:
        return numbers.setdefault(name, len(numbers))

    def arc(tail: object, head: object, cost: int = 0) -> None:
        solver.add_arc_with_capacity_and_unit_cost(node(tail), node(head), 1, cost)

    for name, values in streams.items():
        other = "s" if name == "r" else "r"
        for i in range(n):
            if i < memory // 2:
                arc("source", (name, i, i))
            for j in range(i, min(i + window, n)):
                if j > i:
                    arc((name, i, j), (name, j, j))
                    if shared:
                        arc((name, i, j), (other, j, j))
                if j + 1 < min(i + window, n):
                    arc((name, i, j), (name, i, j + 1), -int(values[i] == streams[other][j + 1]))
                if j == n - 1:
                    arc((name, i, j), "sink")
    path: list[object] = ["source", *(("together", i) for i in range(n) if r[i] == s[i]), "sink"]
    for tail, head in pairwise(path):
        arc(tail, head, -int(tail != "source"))
    solver.set_node_supply(node("source"), memory + 1)
    solver.set_node_supply(node("sink"), -memory - 1)
    assert solver.solve() == solver.OPTIMAL
    return -int(solver.optimal_cost())
