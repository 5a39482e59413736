"""SemiStreamingIndexJoin equals a model of its Algorithms 1 and 2 that takes one tuple at a time."""

from __future__ import annotations

import tempfile
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from semistream import Relation, SemiStreamingIndexJoin
from semistream.errors import BudgetError
from semistream.relation.format.row_sizes import fixed_row_bytes
from tests.joins.cases import MEMORY_BACKED
from tests.joins.ssij.small_joins import NO_SEEKS, SCHEMA, cached_pages, keys, out, ssij


class _Model:
    """SSIJ one tuple at a time, on pages given as lists of keys, all of which cost the same in the cache."""

    def __init__(self, join: SemiStreamingIndexJoin, pages: list[list[int]]) -> None:
        self.join = join
        self.pages_of = {k: [p for p, page in enumerate(pages) if page[0] <= k <= page[-1]] for k in range(-2, 40)}
        self.rows = Counter(key for page in pages for key in page)
        self.page_cost = int(join._cache._cost(np.array([0]))[0]) if pages else 1
        self.tuple_cost = join._layout.tuple_bytes + fixed_row_bytes(SCHEMA)
        self.input: list[int | None] = []
        self.waiting: list[int] = []
        self.utility: dict[int, int] = {}  # of cached pages
        self.pages_read = 0
        self.hits = 0

    @property
    def room(self) -> int:
        """Pages that fit beside the stream."""
        return (self.join._pool - self.tuple_cost * (len(self.input) + len(self.waiting))) // self.page_cost

    def awaited(self, page: int) -> int:
        return sum(page in self.pages_of[key] for key in self.waiting)

    def push(self, batch: list[int | None]) -> list[int]:
        results = []
        batch = list(batch)
        while batch:
            results += self.due()
            count = min(self.join.input_threshold - len(self.input), self.join._split.admit_rows, len(batch))
            needed = self.tuple_cost * (len(self.input) + len(self.waiting) + count)
            while self.utility and needed + self.page_cost * len(self.utility) > self.join._pool:
                least = min(self.utility, key=lambda p: (self.utility[p] + self.awaited(p), -p))
                del self.utility[least]  # Algorithm 1, line 18
            held = self.tuple_cost * (len(self.input) + len(self.waiting)) + self.page_cost * len(self.utility)
            count = min(count, (self.join._pool - held) // self.tuple_cost)
            if count == 0:
                results += self.step()
            self.input += batch[:count]
            del batch[:count]
        return sorted(results + self.due())

    def due(self) -> list[int]:
        results = []
        while True:
            if len(self.waiting) >= self.join.stream_threshold:
                results += self.join_phase()
            elif len(self.input) >= self.join.input_threshold:
                results += self.online_phase()
            else:
                return results

    def step(self) -> list[int]:
        """Run the phase that has work; without work, the worth of pages does not change."""
        if self.input:
            return sorted(self.online_phase())
        return sorted(self.join_phase()) if self.waiting else []

    def online_phase(self) -> list[int]:
        results = []
        for key in self.input:
            pages = self.pages_of[key] if key is not None else []
            if all(page in self.utility for page in pages):
                results += [key] * self.rows[key]
                self.hits += bool(pages)
                for page in pages:
                    self.utility[page] += 1
            else:
                self.waiting.append(key)
        self.input = []
        return results

    def join_phase(self) -> list[int]:
        wanted = {page for key in self.waiting for page in self.pages_of[key]} - self.utility.keys()
        self.pages_read += len(wanted)
        every = {page: self.utility.get(page, 0) + self.awaited(page) for page in wanted | self.utility.keys()}
        order = sorted(every, key=lambda page: (-every[page], page in wanted, page))
        self.utility = dict.fromkeys(order[: self.room], 0)
        results = [key for key in self.waiting for _ in range(self.rows[key])]
        self.waiting = []
        return results


@settings(deadline=None, max_examples=80, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.integers(0, 30), max_size=60),
    st.lists(st.one_of(st.integers(1, 3), st.lists(st.one_of(st.integers(-1, 31), st.none()), max_size=40))),
    st.sampled_from([0, 5_000, 30_000, 60_000, 100_000]),
    st.sampled_from([(3, 7), (5, 11), (16, 1000), (1, 1)]),
)
@example([0, 0, 0, 0, 0, 1], [[1, 1], 1, [0]], 5_000, (1, 1))  # a step that has nothing to do clears no utility
def test_it_is_the_algorithm_one_tuple_at_a_time(r_keys, actions, spare: int, thresholds: tuple[int, int]) -> None:
    """Results, waiting tuples, pages read, hits and cached pages are the model's after every call.

    Keys repeat over pages, memory holds no page or all of them, and pages make way for tuples.
    """
    filler = pa.array([b"\x00" * 700] * len(r_keys), pa.binary())
    table = pa.table({"k": pa.array(r_keys, pa.int64()), "filler": filler})
    with tempfile.TemporaryDirectory(dir=MEMORY_BACKED) as folder:
        relation = Relation.build(table, f"{folder}/r", key="k", page_bytes=4096)
        options = {"disk": NO_SEEKS(), "pages_per_read": 1}
        options |= {"input_threshold": thresholds[0], "stream_threshold": thresholds[1]}
        with pytest.raises(BudgetError) as refused:
            ssij(relation, memory=1, **options)
        with ssij(relation, memory=refused.value.least_bytes + spare, **options) as join:
            check_against_the_model(join, relation, actions)


def check_against_the_model(join: SemiStreamingIndexJoin, relation: Relation, actions: list) -> None:
    runs = relation.read_pages(np.arange(relation.num_pages))
    model = _Model(join, [run.batch(i, ["k"]).column(0).to_pylist() for run in runs for i in range(run.pages.size)])
    for action in [*actions, 2]:
        for _ in range(action if isinstance(action, int) else 1):
            results = out(join.step() if isinstance(action, int) else join.push(keys(*action)))
            assert results == (model.step() if isinstance(action, int) else model.push(action))
            assert join.stats.rows_waiting == len(model.input) + len(model.waiting)
            assert cached_pages(join) == model.utility.keys()
            assert (join.stats.pages_read, join.stats.cache_hits) == (model.pages_read, model.hits)
    assert join.stats.rows_waiting == 0
    assert join.budget.peak <= join.budget.limit
