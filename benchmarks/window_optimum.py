"""window-optimum: time of OPT-offline on the streams of WINDOW 5.2, far beyond the paper's 5600 tuples.

Two uncorrelated Zipf(1) streams over 50 keys, with a window of 800 and a memory of 800, half of what the exact result
needs. The paper's own graph has 1600 nodes for each pair of tuples, and the paper stops at 5600 tuples.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from benchmarks.harness.report import Report
from semistream.datasets import ZipfPair
from semistream.windows import OfflineOptimum, optimal_offline
from semistream.windows.optimum.flow_graph import Allocation

WINDOW, MEMORY, DOMAIN, EXPONENT = 800, 800, 50, 1.0
PAPER_TUPLES, TUPLES = 5_600, 100_000
ALLOCATIONS: tuple[Allocation, ...] = ("fixed", "variable")


def run(scale: float, folder: Path) -> Report:  # noqa: ARG001 - nothing is written
    n = max(2 * WINDOW, int(TUPLES * scale))
    report = Report(
        "window-optimum",
        scale,
        f"two Zipf({EXPONENT:g}) streams of {DOMAIN} keys, window {WINDOW}, memory {MEMORY} tuples",
    )
    _solve(2 * WINDOW, "fixed")  # compiles the kernels
    for tuples in sorted({min(PAPER_TUPLES, n), n}):
        for allocation in ALLOCATIONS:
            best, seconds = _solve(tuples, allocation)
            report.add(
                f"{tuples:,} a stream, {allocation}", [2 * tuples / seconds], unit="tuples/s", note=f"{seconds:.1f} s"
            )
            report.remark(
                f"{tuples:,} tuples a stream, {allocation}: {best.results:,} of {best.exact:,} results "
                f"({best.results / best.exact:.1%}) by {best.arcs:,} arcs in {seconds:.1f} s"
            )
    some = min(PAPER_TUPLES, n)
    best, seconds = _solve(some, "fixed", pairs=True)
    report.add(
        f"{some:,} a stream, fixed, a chain for each tuple",
        [2 * some / seconds],
        unit="tuples/s",
        note=f"{seconds:.1f} s",
    )
    report.remark(
        f"a chain for each tuple, as needed for other predicates and weights: {best.arcs:,} arcs, {seconds:.1f} s"
    )
    return report


def _solve(tuples: int, allocation: Allocation, *, pairs: bool = False) -> tuple[OfflineOptimum, float]:
    left, right = ZipfPair(EXPONENT, DOMAIN, seed=1).keys(tuples)
    begin = time.perf_counter()
    best = optimal_offline(
        left,
        right,
        window=WINDOW,
        memory=MEMORY,
        allocation=allocation,
        val=(lambda rows, _: np.ones(len(rows), dtype=np.int64)) if pairs else None,
    )
    return best, time.perf_counter() - begin
