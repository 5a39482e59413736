"""Strategy: base class of the ways to shed rows of a batch, in parallel, and with the same outcome on every replay."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from semistream.datasets.zipf import whole_number
from semistream.shedding.decision import Decision, Kept
from semistream.shedding.stream_part import StreamPart
from semistream.shedding.summary import BatchSummary, PartSummary

_MOST_SEED = 2**64 - 1


class Strategy(ABC):
    """Shedding in three steps: each task summarises its part, the driver decides, each task applies the decision.

    The outcome is the same on every replay, and no task needs the rows of another. A subclass implements `summarize`
    and ``_decide``, and sets ``name``, and ``is_sample`` if its rows support estimates.

    Methods
    -------
    summarize(part)
        Read a part once and return a small histogram (`PartSummary`).
    decide(parts, limit, seed)
        Turn the histograms of all parts into a `Decision` that keeps at most ``limit`` rows (or seconds).
    shed(part, limit, seed)
        Take the three steps for a batch of one part; the last one is `Decision.apply`.

    Examples
    --------
    >>> import numpy as np
    >>> from semistream.shedding import TopW
    >>> parts = [StreamPart(2, 0, np.array([9, 1])), StreamPart(2, 1, np.array([2, 8]))]
    >>> strategy = TopW()
    >>> decision = strategy.decide([strategy.summarize(part) for part in parts], 2, seed=0)
    >>> [decision.apply(part).mask.tolist() for part in parts]
    [[True, False], [False, True]]

    References
    ----------
    MESH 4.1. docs/shedding.md.
    """

    name: ClassVar[str]
    is_sample: ClassVar[bool] = False
    """True if the kept rows support estimates: every row with results had a known probability above zero."""

    @abstractmethod
    def summarize(self, part: StreamPart) -> PartSummary:
        """Summarise a part for the driver."""

    def decide(self, parts: Sequence[PartSummary], limit: float, seed: int) -> Decision:
        """Decide which rows to keep within ``limit``: a number of rows, or seconds if a strategy weighs costs.

        ``seed`` (see `batch_seed`) fixes all random choices. The order of the parts does not matter.
        """
        return self._decide(BatchSummary.of(parts), limit, whole_number("seed", seed, least=0, most=_MOST_SEED))

    @abstractmethod
    def _decide(self, batch: BatchSummary, limit: float, seed: int) -> Decision:
        """Decide for the combined histogram of all parts; see `decide`."""

    def shed(self, part: StreamPart, limit: float, seed: int) -> Kept:
        """Summarise, decide and apply for a batch of one part."""
        return self.decide([self.summarize(part)], limit, seed).apply(part)


def require_rows(w: float) -> int:
    """Return ``w``, the number of rows that may be joined; refuse anything but a whole number."""
    return whole_number("w", w, least=0)  # type: ignore[arg-type]  # refuses a float with a clear message
