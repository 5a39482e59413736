"""Hit rates of a cache in memories of many sizes, from the key frequencies and from a sample of the stream."""

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
"""Share of the memory assumed for the cache. The curve shows if a cache pays; the tuner chooses its real size."""


@dataclass(frozen=True)
class CachePoint:
    """Hit rate of a cache with a quarter of ``memory_bytes``, which holds ``cached_rows`` rows of R.

    ``modelled`` is the share of the hottest keys by their frequencies. ``sampled`` is the hit rate of a cache of the
    most frequent keys (LFU) over the sample of the stream; None without a sample.
    """

    memory_bytes: int
    cached_rows: float
    modelled: float
    sampled: float | None


def cache_curve(
    candidate: Candidate, memories: Sequence[int], frequencies: KeyFrequencies, sample: Int64s | None
) -> Iterator[CachePoint]:
    """Yield the hit rate of a cache in front of ``candidate`` for each memory large enough for both."""
    reused = None if sample is None or sample.size == 0 else MissRatioCurve.of_sample(sample, policy="lfu")
    for memory_bytes in memories:
        try:
            model = candidate.arranged(memory_bytes, {"cache_share": CACHE_SHARE}).model
        except BudgetError:
            continue
        if isinstance(model, FrontedModel):
            sampled = None if reused is None else float(reused.hit_rate(model.cached_rows))
            yield CachePoint(memory_bytes, model.cached_rows, frequencies.share(model.cached_rows), sampled)
