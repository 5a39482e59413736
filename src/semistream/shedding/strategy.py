"""Strategy: how a batch that is too large for its time is thinned, in parallel and the same on every replay."""

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
    """Three steps: each task sums up its part, the driver decides, each task applies the decision to its part.

    `summarize` reads a part once and gives a small histogram; `decide` turns those of all parts into a decision that
    says the same on every replay; `Decision.apply` needs the decision and the part alone. One part goes the same way:
    `shed`.
    """

    name: ClassVar[str]
    is_sample: ClassVar[bool] = False
    """Whether estimates can be made of what is kept: every row with results had a known chance above zero."""

    @abstractmethod
    def summarize(self, part: StreamPart) -> PartSummary:
        """What the driver has to know of a part."""

    def decide(self, parts: Sequence[PartSummary], limit: float, seed: int) -> Decision:
        """Which rows are kept, within ``limit``: rows, or for `CostAwareTopW` seconds.

        ``seed``, of `batch_seed`, fixes all chance. The order of the parts makes no difference.
        """
        return self._decide(BatchSummary.of(parts), limit, whole_number("seed", seed, least=0, most=_MOST_SEED))

    @abstractmethod
    def _decide(self, batch: BatchSummary, limit: float, seed: int) -> Decision:
        """See `decide`."""

    def shed(self, part: StreamPart, limit: float, seed: int) -> Kept:
        """All three steps for a batch of one part."""
        return self.decide([self.summarize(part)], limit, seed).apply(part)


def require_rows(w: float) -> int:
    """``w``, the number of rows that may be joined, if it is one."""
    return whole_number("w", w, least=0)  # type: ignore[arg-type]  # a float is refused with the right words
