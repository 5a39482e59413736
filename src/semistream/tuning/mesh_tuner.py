"""Chooses b and w of MESHJOIN: the least memory for a rate, or the best rate for the memory (MESH 3.3)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from semistream.tuning.mesh_costs import MeshCosts


class MeshMemoryModel(Protocol):
    """What b and w ask for in memory: MESH (1), as published or as an implementation has it."""

    @property
    def num_pages(self) -> int:
        """N_R: pages of a scan."""

    @property
    def fixed_pages(self) -> int | None:
        """b, if it cannot be chosen."""

    def loops(self, pages: int) -> int:
        """How many loops of b = ``pages`` are done at once."""

    def total(self, pages: int, rows: int) -> int:
        """M of MESH (1)."""

    def fits(self, pages: int, rows: int) -> bool:
        """Whether there is so much."""

    def most_rows(self, pages: int) -> float:
        """The greatest w that fits with b = ``pages``; below 1, the share of loops in which a tuple can enter."""


@dataclass(frozen=True)
class MeshParameters:
    """b and w: pages that a loop joins, and tuples that it admits."""

    pages_per_step: int
    rows_per_step: int


@dataclass(frozen=True)
class MeshTuner:
    """The two objectives of MESH 3.3 over a cost model and a memory model.

    The paper finds the best b by calculus, with real numbers. Here b and w are whole, and so is the number of
    loops in a scan, ceil(N_R / b). Of all b that make the same number, the least takes the least memory and the least
    time, hence the best b is ceil(N_R / q) for some q. There are at most 2 * sqrt(N_R) + 2 such values: all of
    them are tried, and the choice is exact. Where the memory fixes b, only w is chosen.
    """

    costs: MeshCosts
    memory: MeshMemoryModel

    def least_memory(self, rate: float) -> MeshParameters | None:
        """The b and w of least memory by MESH (1) that sustain ``rate`` by MESH (5), if any do in the budget."""
        best: tuple[int, MeshParameters] | None = None
        for pages in self._pages_to_try():
            rows = self.costs.least_rows(rate, pages, self._packets(pages))
            if rows is not None and self.memory.fits(pages, rows):
                total = self.memory.total(pages, rows)
                if best is None or total < best[0]:
                    best = total, MeshParameters(pages, rows)
        return None if best is None else best[1]

    def greatest_rate(self) -> MeshParameters:
        """The b and w of the greatest service rate by MESH (3) that fit the budget.

        Where not even w = 1 has a window of w * N_R / b tuples, w is 1 and the window is what fits: a tuple then enters
        when one has left.
        """
        best = -math.inf, MeshParameters(1, 1)
        for pages in self._pages_to_try():
            most = self.memory.most_rows(pages)
            if most > 0:
                rows = math.floor(most) if most >= 1 else most
                best = max(
                    best,
                    (self.service_rate(pages, rows), MeshParameters(pages, max(math.floor(rows), 1))),
                    key=lambda tried: tried[0],
                )
        return best[1]

    def service_rate(self, pages: int, rows: float) -> float:
        """Tuples per second by MESH (3)."""
        return self.costs.service_rate(pages, rows, self._packets(pages))

    def _pages_to_try(self) -> list[int]:
        fixed = self.memory.fixed_pages
        return steps_to_try(self.memory.num_pages) if fixed is None else [fixed]

    def _packets(self, pages: int) -> float:
        """Packets per loop."""
        return 1 / self.memory.loops(pages)


def steps_to_try(num_pages: int) -> list[int]:
    """All values of ceil(num_pages / q), and no more than a few others, in ascending order.

    >>> steps_to_try(10)
    [1, 2, 3, 4, 5, 10]
    """
    root = math.isqrt(num_pages) + 1
    few = range(1, min(root, num_pages) + 1)
    return sorted({*few, *(-(-num_pages // q) for q in few)})
