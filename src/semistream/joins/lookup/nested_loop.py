"""IndexNestedLoopJoin, the papers' baseline, which looks up stream tuples in a B+tree of R; and its cost model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Unpack

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.costs.work import Work
from semistream.costs.workload import Workload
from semistream.errors import InvalidArgument, require_numbers
from semistream.joins.condition.spec import JoinSpec
from semistream.joins.join_facts import JoinFacts
from semistream.joins.lookup.base import LookupJoin, split_lookup_memory
from semistream.joins.lookup.lmdb_store import Leaf, LmdbStore, open_store
from semistream.joins.mesh.cost_model import served_at_once
from semistream.joins.parts.memory_split import MemorySplit
from semistream.joins.requirements import JoinArguments
from semistream.kernels.array_types import Int64s
from semistream.relation import AnyRelation, DiskCounts, PageRun, Relation
from semistream.relation.read.disk import allocate_buffer, buffer_bytes
from semistream.relation.read.disk_costs import DiskCosts


@dataclass(frozen=True)
class NestedLoopModel:
    """Cost model of index nested loops that look up ``rows_at_once`` tuples together, in the order of their keys.

    Each page that a group needs is read once, by one request, unless the system's page cache has it, since the file of
    the tree is mapped. Up to ``pages_at_once`` pages are joined together, as many as fit in the buffer. The papers look
    up one tuple at a time: with ``rows_at_once`` = 1, each tuple costs a seek and a page.
    """

    rows_at_once: float = 1.0
    pages_at_once: float = 1.0

    def __post_init__(self) -> None:
        require_numbers(self, "rows_at_once", "pages_at_once", least=1)

    def work(self, workload: Workload, costs: DiskCosts) -> Work:  # noqa: ARG002
        """Return the work per tuple."""
        rows = served_at_once(self.rows_at_once, workload.batch_rows)
        asked = workload.frequencies.pages(workload.num_pages, rows)
        pages = asked / rows
        return Work(
            seeks=pages,
            pages=pages,
            steps=1 / rows,
            probes=1.0,
            waits=rows,
            longest_wait=rows,
            packets=1 / rows,
            level_probes=max(asked / self.pages_at_once, 1.0) / rows,
            reads_ahead=False,
            mapped=True,
        )


class IndexNestedLoopJoin(LookupJoin):
    """Index nested loops on LMDB: the papers' baseline (MESH 1 and 5.1, there on Berkeley DB).

    The tree is built from the relation on first use. The tuples of a step are looked up in the order of their codes, so
    that the tree is descended once for a page that several of them need; the papers look up one tuple at a time. Each
    page costs a random read, and no scan is shared. The other operators are measured against this. The result is
    exact.

    LMDB maps its file. The operating system caches parts of it, but can reclaim that memory at any time, so it is not
    charged to the budget. Every page is copied into a buffer, which is charged. The condition must restrict R's key to
    a value or a range.

    Parameters
    ----------
    relation : Relation
        The relation R. Parquet is refused.
    **arguments
        Other parameters are those of `SemiStreamJoin`.

    Examples
    --------
    >>> import tempfile
    >>> from semistream import Relation
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rates = Relation.build(pa.table({"least": [1, 10], "rate": [9, 7]}), f"{folder}/r", key="least")
    ...     orders = pa.record_batch({"amount": [5, 12]})
    ...     with IndexNestedLoopJoin(rates, orders.schema, where="s.amount >= r.least", memory="1MB") as join:
    ...         [row for batch in [*join.push(orders), *join.flush()] for row in batch.to_pylist()]
    [{'amount': 5, 'least': 1, 'rate': 9}, {'amount': 12, 'least': 1, 'rate': 9}, ...]

    References
    ----------
    MESH 1 and 5.1 (Index-Nested-Loops).
    """

    name = "nested_loop"

    def __init__(self, relation: Relation, stream: pa.Schema | JoinSpec, **arguments: Unpack[JoinArguments]) -> None:
        self._counts = DiskCounts()
        super().__init__(relation, stream, **arguments)

    @classmethod
    def model(cls, facts: JoinFacts, memory: MemoryBudget) -> NestedLoopModel:
        """Return the model with as many tuples and pages at once as fit in ``memory``."""
        relation = facts.relation
        split = _split_memory(memory, relation, facts.spec)
        fitting = split.run_bytes * relation.num_pages // max(relation.nbytes, 1)
        return NestedLoopModel(split.admit_rows, pages_at_once=max(min(fitting, split.run_pages), 1))

    def arrange(self) -> None:
        self._set_up(_split_memory(self._memory, self.relation, self.spec))
        self._store: LmdbStore | None = open_store(self.relation)
        self._buffer = allocate_buffer(buffer_bytes(self._split.run_bytes))

    @property
    def disk_counts(self) -> DiskCounts:
        return self._counts

    def pages_to_drain(self) -> int:
        pages = self.relation.num_pages
        if not self.spec.condition.single_codes:
            return len(self._waiting) * pages
        return sum(min(tuples.sizes.size, pages) for tuples in self._waiting)  # at most one page per tuple

    def _runs(self, low: Int64s, furthest: Int64s) -> Iterator[PageRun]:
        """Yield runs of as many pages as fit in the buffer."""
        pages: list[tuple[Leaf, int]] = []  # with their starts in the buffer
        used = 0
        position = 0
        while position < low.size:
            for leaf in self._leaves(int(low[position])):
                # The first range that does not end before the page. If it starts after the page, so do all others.
                position += int(np.searchsorted(furthest[position:], leaf.first_code, "left"))
                if position == low.size or low[position] > leaf.last_code:
                    break  # no range needs this page: descend to the page of the next range
                nbytes = sum(map(len, leaf.segments))
                if used + nbytes > self._split.run_bytes or len(pages) == self._split.run_pages:
                    yield self._run(pages)
                    pages, used = [], 0
                pages.append((leaf, used))
                for segment in leaf.segments:
                    self._buffer[used : used + len(segment)] = np.frombuffer(segment, np.uint8)
                    used += len(segment)
                self._counts.requests += 1
                self._counts.seeks += 1
                self._counts.pages += 1
                self._counts.bytes += nbytes
            else:
                break  # the tree has no more pages
        if pages:
            yield self._run(pages)

    def _leaves(self, code: int) -> Iterator[Leaf]:
        if self._store is None:
            raise InvalidArgument("the operator is closed; create a new one.")
        return self._store.leaves(code, self.relation.groups)

    def close(self) -> None:
        """Release the tree, which is closed with the last operator that uses it."""
        self._store = None
        super().close()

    def _run(self, pages: list[tuple[Leaf, int]]) -> PageRun:
        number = np.array([leaf.page for leaf, _ in pages], np.intp)
        rows = np.array([leaf.rows for leaf, _ in pages], np.int32)
        nbytes = np.array(
            [[len(leaf.segments[i]) for leaf, _ in pages] for i in range(self.relation.segments)], np.int64
        )
        starts = np.array([start for _, start in pages], np.int64) + np.cumsum(nbytes, axis=0) - nbytes
        return PageRun(self.relation.layout, self._buffer, number, starts, rows, nbytes)


def _split_memory(memory: MemoryBudget, relation: AnyRelation, spec: JoinSpec) -> MemorySplit:
    return split_lookup_memory(memory, relation, spec, purpose=f"an index nested loop join with {relation.path}")
