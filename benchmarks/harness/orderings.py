"""Claims of the papers about the order of operators, checked against a grid of measurements."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.harness.grid import Grid, Setting

_SKEWED = 0.5
_LEAST_SHARE = 0.05  # memory as a share of R; with less, a small R leaves operators hardly more than their minimum
_STEADY = 0.8  # lowest rate over the highest that still counts as "does not change much"


@dataclass(frozen=True)
class Ordering:
    """A claim that ``ahead`` has a higher rate than ``behind`` in the settings selected by ``where``."""

    claim: str
    source: str
    ahead: str
    behind: str
    where: Callable[[Setting], bool]

    def verdict(self, grid: Grid) -> str:
        """Return the verdict: "seen" if the claim holds in every setting with enough memory for both."""
        first, second = grid.rates(self.ahead), grid.rates(self.behind)
        both = [setting for setting in first if setting in second and self.where(setting)]
        ratios = [_ratio(first[setting], second[setting]) for setting in both]
        return _verdict(f"{self.claim} ({self.source})", ratios, 1.0)


def _skewed(setting: Setting) -> bool:
    return setting.exponent >= _SKEWED


def _uniform(setting: Setting) -> bool:
    return setting.exponent == 0


def _any(_: Setting) -> bool:
    return True


ORDERINGS = (
    Ordering("MESHJOIN ahead of index nested loops", "MESH 5, Fig. 10b", "mesh", "nested_loop", _any),
    Ordering("SSIJ ahead of MESHJOIN under skew", "SSIJ VI-A, Fig. 3-6", "index", "mesh", _skewed),
    Ordering("CMESHJOIN ahead of MESHJOIN under skew", "FRONT 4, Fig. 3b and 3d", "cmesh", "mesh", _skewed),
    Ordering("MESHJOIN ahead of CMESHJOIN without skew", "FRONT 4, Fig. 3d", "mesh", "cmesh", _uniform),
    Ordering("CMESHJOIN ahead of index nested loops", "FRONT 4, Fig. 3c", "cmesh", "nested_loop", _any),
    Ordering("HYBRIDJOIN ahead of MESHJOIN under skew", "HYBRID 6.2, Fig. 7e", "hybrid", "mesh", _skewed),
    Ordering("MESHJOIN ahead of HYBRIDJOIN without skew", "HYBRID 6.2, Fig. 7e", "mesh", "hybrid", _uniform),
    Ordering("HYBRIDJOIN ahead of index nested loops", "HYBRID 6.2", "hybrid", "nested_loop", _any),
)


def verdicts(grid: Grid, auto: str) -> list[str]:
    """Return a line for each claim; ``auto`` is the operator a user gets by default."""
    enough = Grid(grid.title, grid.unit, [cell for cell in grid.cells if cell.setting.share >= _LEAST_SHARE])
    lines = [ordering.verdict(enough) for ordering in ORDERINGS]
    lines.append(_grows("SSIJ is faster the more the stream is skewed (SSIJ VI)", enough, "index"))
    lines.append(_steady("MESHJOIN's rate does not change much with skew (SSIJ VI-A, FRONT 4)", enough, "mesh"))
    return [*lines, _beside_the_best(grid, auto)]


def _grows(claim: str, grid: Grid, operator: str) -> str:
    """Check that the rate grows from each exponent to the next, for the same R and memory."""
    ratios = [_ratio(after, before) for rates in _by_skew(grid, operator) for before, after in pairwise(rates)]
    return _verdict(claim, ratios, 1.0)


def _steady(claim: str, grid: Grid, operator: str) -> str:
    return _verdict(claim, [_ratio(min(rates), max(rates)) for rates in _by_skew(grid, operator)], _STEADY)


def _by_skew(grid: Grid, operator: str) -> list[list[float]]:
    """Return an operator's rates ordered by exponent, for each R and memory."""
    found: dict[tuple[int, float], list[tuple[float, float]]] = {}
    for setting, rate in grid.rates(operator).items():
        found.setdefault((setting.rows, setting.share), []).append((setting.exponent, rate))
    return [[rate for _, rate in sorted(rates)] for rates in found.values()]


def _beside_the_best(grid: Grid, auto: str) -> str:
    """Describe the worst and median ratio of the default to the best other operator."""
    ratios = {
        setting: _ratio(rate, best)
        for setting, rate in grid.rates(auto).items()
        if (best := max((grid.rate(o, setting) or 0.0 for o in grid.operators if o != auto), default=0.0))
    }
    if not ratios:
        return f"auto ({auto}): not measured"
    worst = min(ratios, key=ratios.__getitem__)
    return (
        f"auto ({auto}) over the best of the others: {ratios[worst]:.2f} at worst (R {worst.rows:,}, Zipf "
        f"{worst.exponent:g}, memory {worst.share:.1%}), {statistics.median(ratios.values()):.2f} in the median"
    )


def _ratio(first: float, second: float) -> float:
    return 1.0 if first == second else first / second if second else math.inf


def _verdict(claim: str, ratios: list[float], least: float) -> str:
    if not ratios:
        return f"{claim}: not measured"
    held = sum(ratio >= least for ratio in ratios)
    word = "seen" if held == len(ratios) else "not seen"
    middle = f"ratio {statistics.median(ratios):.2f} in the median, {min(ratios):.2f} to {max(ratios):.2f}"
    return f"{claim}: {word}, holds in {held} of {len(ratios)} settings, {middle}"
