"""TopW against CostAwareTopW on the engine with its front stage, with the same seconds per batch.

The rows per key of R and the frequencies of keys in S both follow Zipf laws. The most frequent keys of S are those with
the most rows in R, or random ones. The time limit of a batch is a share of the time of the whole batch. The run
measures three costs: a tuple answered by the cache, a tuple that misses, and a page of R, which all its misses share.
Each strategy has its own operator, whose cache adapts to the tuples kept. It keeps as many tuples as fit in the limit
by these costs. Since they are averages, the limit is corrected by the measured time of its batches. The report has
measured values only: seconds, and the share of results lost.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from experiments.cost_aware_top_w import CostAwareTopW

from semistream import EngineJoin, Relation
from semistream.datasets import Zipf
from semistream.shedding import StreamPart, TopW

STREAM_SKEWS = (0.5, 1.0, 1.5)
RELATION_SKEW = 0.5
SPEED_RATIOS = (2.0, 4.0)
_KEYS, _ROWS, _BATCH = 300_000, 1_000_000, 100_000
_LEAST = 0.1  # smallest scale: with less memory there is no room for a cache
_MOST_RESULTS = 1_000_000  # per batch, if frequent keys have many rows
_MEMORY, _CACHE = 0.1, 0.5  # memory as a share of R, and cache as a share of the memory
_COLUMNS = ["c0", "c1", "c2"]
_SCHEMA = pa.schema([("key", pa.int64()), ("seq", pa.int64())])
_WARM, _CORRECTED, _TIMED = 5, 5, 5  # batches
_FEW = 8  # a batch with one miss in 8 separates the cost of a miss from that of a page
_HALVED, _NEVER_S = 10, 1e9
_ALIKE = 1.2  # largest ratio of two times that count as equal

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Costs:
    """Seconds for a tuple answered by the cache, for one that misses, and for a page of R shared by its misses."""

    hit_s: float
    miss_s: float
    page_s: float


@dataclass(frozen=True)
class Batch:
    """Tuples, with the number of matching rows of R and their page for each."""

    rows: pa.RecordBatch
    matches: Int64s
    pages: Int64s

    def num_pages(self, missed: Bools) -> int:
        return int(np.count_nonzero(np.bincount(self.pages[missed])))

    def seconds(self, costs: Costs, held: Bools, kept: Bools) -> float:
        """Return the predicted seconds of the ``kept`` tuples; the cache answers the ``held`` ones."""
        missed = kept & ~held
        hits, misses = np.count_nonzero(kept & held), np.count_nonzero(missed)
        return costs.hit_s * hits + costs.miss_s * misses + costs.page_s * self.num_pages(missed)

    def joined(self, operator: EngineJoin, kept: Bools | None = None) -> float:
        """Join the ``kept`` tuples, flush, check the number of results, and return the seconds."""
        rows = self.rows if kept is None else self.rows.filter(pa.array(kept))
        start = time.perf_counter()
        results = sum(batch.num_rows for batch in operator.push(rows))
        results += sum(batch.num_rows for batch in operator.flush())
        taken = time.perf_counter() - start
        expected = int((self.matches if kept is None else self.matches[kept]).sum())
        if results != expected:
            raise RuntimeError(f"the join gave {results} results, expected {expected}")
        return taken


Keep = Callable[[Batch, Bools, Costs, float], Bools]
"""Returns the tuples of a batch to keep, given the cached ones, the costs and a limit in seconds."""


def top(batch: Batch, held: Bools, costs: Costs, limit_s: float) -> Bools:
    """Return the tuples TopW keeps with the largest w that fits in the limit."""
    part = StreamPart(held.size, matches=batch.matches)
    return _most(lambda share: TopW().shed(part, int(share * held.size), 4).mask, batch, held, costs, limit_s)


def by_cost(batch: Batch, held: Bools, costs: Costs, limit_s: float) -> Bools:
    """Return the tuples CostAwareTopW keeps, with the cost of a miss that gives the most results.

    CostAwareTopW adds up the costs of rows, but many misses share the cost of a page. Three costs of a miss are tried:
    its own alone, its own plus an equal share of all pages, and one so high that only hits are kept.
    """
    missed = ~held
    shared_s = costs.page_s * batch.num_pages(missed) / max(np.count_nonzero(missed), 1)
    tried = []
    for miss_s in (costs.miss_s, costs.miss_s + shared_s, _NEVER_S):
        seconds = np.where(held, costs.hit_s, miss_s)
        part, whole_s = (
            StreamPart(held.size, matches=batch.matches, seconds=seconds),
            float(seconds[seconds < _NEVER_S].sum()),
        )
        tried.append(_most(partial(_shed_by_cost, part, whole_s), batch, held, costs, limit_s))
    return max(tried, key=lambda mask: int(batch.matches[mask].sum()))


def _shed_by_cost(part: StreamPart, whole_s: float, share: float) -> Bools:
    return CostAwareTopW().shed(part, share * whole_s, 4).mask


def _most(kept: Callable[[float], Bools], batch: Batch, held: Bools, costs: Costs, limit_s: float) -> Bools:
    """Return the tuples kept at the largest share whose predicted seconds are within the limit."""
    low, high = 0.0, 1.0
    everything = kept(high)
    if batch.seconds(costs, held, everything) <= limit_s:
        return everything
    for _ in range(_HALVED):
        middle = (low + high) / 2
        within = batch.seconds(costs, held, kept(middle)) <= limit_s
        low, high = (middle, high) if within else (low, middle)
    return kept(low)


STRATEGIES: dict[str, Keep] = {"TopW": top, "CostAwareTopW": by_cost}


@dataclass(frozen=True)
class Comparison:
    """Share of results each strategy loses, and seconds its batches take, with a limit of ``limit_s``."""

    limit_s: float
    lost: dict[str, float]
    taken_s: dict[str, float]

    @property
    def fair(self) -> bool:
        """True if both took about the same time."""
        first, second = self.taken_s.values()
        return max(first, second) <= _ALIKE * min(first, second)

    def __str__(self) -> str:
        each = (f"{name} loses {lost:.1%} (in {self.taken_s[name] * 1e3:.0f} ms)" for name, lost in self.lost.items())
        return f"in {self.limit_s * 1e3:.0f} ms {', '.join(each)}"


def shedding_remarks(scale: float, folder: Path) -> list[str]:
    """Return a line on the loss of both strategies for each kind of hot keys and skew of S, and a verdict."""
    size = max(scale, _LEAST)
    keys, rows, batch = int(_KEYS * size), int(_ROWS * size), int(_BATCH * size)
    relation, rows_of_key = _relation(folder, keys, rows)
    lines, found = [], []
    orders = {"not those": np.random.default_rng(2).permutation(keys), "those": np.arange(keys)}
    for hot, key_of_rank in orders.items():
        for skew in STREAM_SKEWS:
            trial = _Trial(relation, rows_of_key, key_of_rank, Zipf(skew, keys, seed=3, permute=False), batch)
            told, compared = trial.run()
            lines.append(f"shedding, S Zipf {skew:g}, its hot keys {hot} with the most rows in R: {told}")
            found += compared
    return [*lines, _verdict(found)]


def _verdict(found: Sequence[Comparison]) -> str:
    fair = [each for each in found if each.fair]
    less = sum(each.lost["CostAwareTopW"] < each.lost["TopW"] for each in fair)
    unfair = f"; {len(found) - len(fair)} more comparisons differ too much in time" if len(fair) < len(found) else ""
    return f"shedding: in the same time CostAwareTopW loses less than TopW in {less} of {len(fair)} comparisons{unfair}"


class _Trial:
    """Comparison on one stream, in batches of ``rows`` tuples, or fewer if these have too many results."""

    def __init__(self, relation: Relation, rows_of_key: Int64s, key_of_rank: Int64s, ranks: Zipf, rows: int) -> None:
        self._relation, self._rows_of_key, self._key_of_rank, self._ranks = relation, rows_of_key, key_of_rank, ranks
        self._rows = rows
        self._rows = int(rows * min(_MOST_RESULTS / self._next().matches.sum(), 1.0))

    def run(self) -> tuple[str, list[Comparison]]:
        with self._open() as first, self._open() as second:
            for _ in range(_WARM):
                batch = self._next()
                batch.joined(first)
                batch.joined(second)
            whole_s, hits, costs = self._measured(first)
            operators = dict(zip(STRATEGIES, (first, second), strict=True))
            found = [self._compared(operators, costs, whole_s / ratio) for ratio in SPEED_RATIOS]
        told = (
            f"{self._rows:,} tuples, {hits:.0%} hits, {whole_s * 1e3:.0f} ms; a hit {costs.hit_s * 1e6:.2f} us, a miss "
            f"{costs.miss_s * 1e6:.2f} us, a page shared by misses {costs.page_s * 1e6:.0f} us"
        )
        return "; ".join([told, *map(str, found)]), found

    def _open(self) -> EngineJoin:
        memory = int(self._relation.nbytes * _MEMORY)
        return EngineJoin(self._relation, _SCHEMA, on="key", memory=memory, cache_share=_CACHE, columns=_COLUMNS)

    def _next(self) -> Batch:
        keys = self._key_of_rank[self._ranks.keys(self._rows)]
        rows = pa.record_batch([keys, np.arange(keys.size)], schema=_SCHEMA)
        codes, _ = self._relation.codec.encode([rows.column("key")])
        return Batch(rows, self._rows_of_key[keys], np.searchsorted(self._relation.table.last_code, codes, "left"))

    def _measured(self, operator: EngineJoin) -> tuple[float, float, Costs]:
        """Return the median seconds of a whole batch, the median share of hits, and the costs."""
        whole, hits, hit_s, all_s, few_s = [], [], [], [], []
        for _ in range(_TIMED):
            whole.append(self._next().joined(operator))
            batch = self._next()
            held = operator.holds(batch.rows)
            missed, few = ~held, ~held & (np.arange(held.size) % _FEW == 0)
            hits.append(float(held.mean()))
            hit_s.append(batch.joined(operator, held) / max(np.count_nonzero(held), 1))
            all_s.append(batch.joined(operator, missed))
            few_s.append(batch.joined(operator, few))
        each_s = statistics.median(hit_s)
        work = [[np.count_nonzero(mask), batch.num_pages(mask)] for mask in (missed, few)]
        miss_s, page_s = np.linalg.lstsq(np.array(work, float), [statistics.median(all_s), statistics.median(few_s)])[0]
        if page_s < 0 or miss_s < each_s:  # noise: a page cannot cost less than 0, nor a miss less than a hit
            miss_s = each_s
            page_s = max(statistics.median(all_s) - each_s * work[0][0], 0.0) / max(work[0][1], 1)
        costs = Costs(each_s, float(miss_s), float(page_s))
        return statistics.median(whole), statistics.median(hits), costs

    def _compared(self, operators: dict[str, EngineJoin], costs: Costs, limit_s: float) -> Comparison:
        """Run both strategies in turns, first to correct their limits, then to measure loss and seconds."""
        believed = dict.fromkeys(operators, limit_s)
        lost: dict[str, list[float]] = {name: [] for name in operators}
        taken: dict[str, list[float]] = {name: [] for name in operators}
        for number in range(_CORRECTED + _TIMED):
            batch = self._next()
            for name, operator in operators.items():
                kept = STRATEGIES[name](batch, operator.holds(batch.rows), costs, believed[name])
                seconds = batch.joined(operator, kept)
                if number < _CORRECTED:
                    believed[name] *= float(np.clip(limit_s / seconds, 0.5, 2.0)) ** 0.5
                else:
                    taken[name].append(seconds)
                    lost[name].append(1 - float(batch.matches[kept].sum() / batch.matches.sum()))
        return Comparison(
            limit_s,
            {name: statistics.mean(each) for name, each in lost.items()},
            {name: statistics.median(each) for name, each in taken.items()},
        )


def _relation(folder: Path, keys: int, rows: int) -> tuple[Relation, Int64s]:
    """Open R of 120-byte rows, built if missing, and return it with the rows per key; key 0 has the most."""
    rows_of_key = np.bincount(Zipf(RELATION_SKEW, keys, seed=1, permute=False).keys(rows), minlength=keys)
    path = folder / f"relation-skewed-{keys}-{rows}"
    if not (path / "CURRENT").exists():
        generator = np.random.default_rng(7)
        columns = {f"c{i}": generator.integers(0, 1 << 40, rows) for i in range(14)}
        key = generator.permutation(np.repeat(np.arange(keys), rows_of_key))
        Relation.build(pa.table({"key": key, **columns}), path, key="key")
    return Relation.open(path), rows_of_key
