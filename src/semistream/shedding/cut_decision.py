"""CutDecision: rows with more matches than a cut are kept, and of those on it so many in each part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from semistream.shedding.decision import Decision, Kept
from semistream.shedding.seeds import row_ranks
from semistream.shedding.stream_part import StreamPart

Places = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Cut:
    """Of rows that take ``seconds`` (None: of all rows), those with matches > ``at`` are kept.

    Of the ``ties``, the rows of all parts that have exactly so many, ``quotas`` of each part are kept too.
    """

    at: int
    ties: int
    quotas: tuple[int, ...]
    seconds: float | None = None

    @property
    def share(self) -> float:
        """With which probability a row on the cut is kept."""
        return sum(self.quotas) / self.ties if self.ties else 0.0


@dataclass(frozen=True)
class CutDecision(Decision):
    """One cut for all rows, or one for those of each cost.

    Ties go to the rows of least rank (``by_chance``: each is as likely as any other), or to those that came first. If
    ``counts_matches`` is false all rows tie, whatever their matches.
    """

    kind: ClassVar[str] = "cut"
    cuts: tuple[Cut, ...]
    by_chance: bool
    counts_matches: bool

    def _apply(self, part: StreamPart, place: int) -> Kept:
        mask = np.zeros(part.rows, np.bool_)
        inclusion = np.zeros(part.rows)
        for cut in self.cuts:
            above, ties = self._divide(cut, part)
            kept = self._first(ties, cut.quotas[place], part)
            mask[above] = mask[kept] = True
            inclusion[above] = 1.0
            if self.by_chance:
                inclusion[ties] = cut.share
            else:
                inclusion[kept] = 1.0
        return Kept(mask, inclusion)

    def _divide(self, cut: Cut, part: StreamPart) -> tuple[Places, Places]:
        """The rows above a cut, and those on it."""
        if not self.counts_matches:
            return np.empty(0, np.intp), np.arange(part.rows)
        matches = part.require_matches(self.strategy)
        above, ties = matches > cut.at, matches == cut.at
        if cut.seconds is not None:
            own = part.require_seconds(self.strategy) == cut.seconds
            above &= own
            ties &= own
        return np.flatnonzero(above), np.flatnonzero(ties)

    def _first(self, ties: Places, keep: int, part: StreamPart) -> Places:
        """Those of the ties that are kept."""
        if keep >= ties.size or not self.by_chance:
            return ties[:keep]
        ranks = row_ranks(self.seed, part.number, part.rows)[ties]
        return ties[np.argpartition(ranks, keep)[:keep]]

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> CutDecision:
        """The decision read back."""
        cuts = tuple(Cut(**{**cut, "quotas": tuple(cut["quotas"])}) for cut in record["cuts"])
        return cls(**{**cls._fields(record), "cuts": cuts})
