"""What a cache would answer in memories of many sizes: by the law of the keys, and by a sample of the stream itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from semistream.costs.key_frequencies import KeyFrequencies
from semistream.costs.miss_ratio import MissRatioCurve
from semistream.errors import BudgetError
from semistream.joins.cache.cost_model import FrontedModel
from semistream.kernels.array_types import Int64s
from semistream.tuning.tuner import Candidate

CACHE_SHARE = 0.25
"""Of a memory, that the cache is taken to have: the curve says whether a cache is worth it, the tuner how large."""


@dataclass(frozen=True)
class CachePoint:
    """A memory, the rows of R that a quarter of it holds, and the share of the stream that asks for these.

    ``modelled`` is that of the hottest keys by their frequencies; ``sampled`` what a cache of the keys asked for most
    often had answered of a sample of the stream, if there is one.
    """

    memory_bytes: int
    cached_rows: float
    modelled: float
    sampled: float | None


def cache_curve(
    candidate: Candidate, memories: Sequence[int], frequencies: KeyFrequencies, sample: Int64s | None
) -> Iterator[CachePoint]:
    """What a cache before ``candidate`` would answer in each memory that is enough for one."""
    reused = None if sample is None or sample.size == 0 else MissRatioCurve.of_sample(sample, policy="lfu")
    for memory_bytes in memories:
        try:
            model = candidate.arranged(memory_bytes, {"cache_share": CACHE_SHARE}).model
        except BudgetError:
            continue
        if isinstance(model, FrontedModel):
            sampled = None if reused is None else float(reused.hit_rate(model.cached_rows))
            yield CachePoint(memory_bytes, model.cached_rows, frequencies.share(model.cached_rows), sampled)
