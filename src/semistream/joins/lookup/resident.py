"""ResidentJoin: holds all of R in memory, for relations that fit in the budget; and its cost model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.costs.work import Work
from semistream.costs.workload import Workload
from semistream.errors import require_numbers
from semistream.joins.condition.spec import JoinSpec
from semistream.joins.join_facts import JoinFacts
from semistream.joins.lookup.base import LookupJoin, split_lookup_memory
from semistream.joins.loop import Results
from semistream.joins.mesh.cost_model import served_at_once
from semistream.joins.parts.memory_split import MemorySplit, Shares, page_overhead
from semistream.kernels.array_types import Int64s
from semistream.relation import AnyRelation, PageRun
from semistream.relation.read.disk import allocate_buffer, buffer_bytes
from semistream.relation.read.disk_costs import DiskCosts


@dataclass(frozen=True)
class ResidentModel:
    """Cost model of look-ups of ``rows_at_once`` tuples together in an R held in memory, with no disk time.

    No tuple waits: each push returns its own results.
    """

    rows_at_once: float

    def __post_init__(self) -> None:
        require_numbers(self, "rows_at_once", least=1)

    def work(self, workload: Workload, costs: DiskCosts) -> Work:  # noqa: ARG002
        """Return the work per tuple."""
        rows = served_at_once(self.rows_at_once, workload.batch_rows)
        return Work(
            seeks=0.0,
            pages=0.0,
            steps=1 / rows,
            probes=1.0,
            waits=0.0,
            longest_wait=0.0,
            hits=1.0,
            packets=1 / rows,
            reads_ahead=False,
        )


_SHARES = Shares(admit=4, matches=8)  # the memory that R leaves is for tuples: larger groups take fewer steps


class ResidentJoin(LookupJoin):
    """Join with all of R in memory, for small relations.

    It holds R's pages as they are on disk, restricted to the column groups that the join reads. R is read once per
    version, when the first tuple arrives. Each push returns all its results, and no tuple waits. The result is exact.

    The papers' R is far larger than memory, so they have no such operator. But a chain of joins often includes small
    relations, such as the stores and customers of a star schema. Where a sweep would read R for each batch, this join
    only looks tuples up. It refuses a memory that R does not fit in, and a new version that has outgrown the memory.
    The condition must restrict R's key to a value or a range.

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
    ...     stores = Relation.build(pa.table({"id": [1, 2], "city": ["Athens", "Bonn"]}), f"{folder}/r", key="id")
    ...     sales = pa.record_batch({"store": [2, 3, 2]})
    ...     with ResidentJoin(stores, sales.schema, on={"store": "id"}, memory="1MB") as join:
    ...         [batch.to_pydict() for batch in join.push(sales)]
    [{'store': [2, 2], 'city': ['Bonn', 'Bonn']}]

    References
    ----------
    docs/operators.md.
    """

    name = "resident"

    @classmethod
    def model(cls, facts: JoinFacts, memory: MemoryBudget) -> ResidentModel:
        """Return the model with as many tuples at once as fit in ``memory`` beside R."""
        return ResidentModel(rows_at_once=_split_memory(memory, facts.relation, facts.spec).admit_rows)

    def arrange(self) -> None:
        self._set_up(_split_memory(self._memory, self.relation, self.spec))
        self._run: PageRun | None = None

    def feed(self, batch: pa.RecordBatch) -> Results:
        yield from super().feed(batch)
        yield from self.drain()
        self.stats.cache_hits = self.stats.rows_done

    def pages_to_drain(self) -> int:
        return 0  # no tuple waits between two calls

    def _runs(self, low: Int64s, furthest: Int64s) -> Iterator[PageRun]:
        """Yield all of R as one run, in which the codes are found by binary search."""
        del furthest
        if low.size and self.relation.num_pages:
            if self._run is None:
                self._run = self._read_whole()
            yield self._run

    def _read_whole(self) -> PageRun:
        """Read all pages into one buffer, in the order of their codes."""
        relation, table = self.relation, self.relation.table
        nbytes = np.array([segment.nbytes for segment in table.segments], np.int64)
        ends = np.cumsum(nbytes.sum(axis=0))
        starts = ends - np.cumsum(nbytes[::-1], axis=0)[::-1]  # the segments of a page are adjacent
        buffer = allocate_buffer(buffer_bytes(relation.nbytes))
        order, run_bytes = table.scan_order(), self._split.run_bytes
        reader = relation.reader(run_bytes=run_bytes, disk=self._disk, buffers=1)
        try:
            for run in reader.read_all(order[a:b] for a, b in pairwise(table.cut_runs(order, run_bytes))):
                for position, page in enumerate(run.pages.tolist()):
                    for segment, start in enumerate(starts[:, page].tolist()):
                        message = run.message(position, segment)
                        buffer[start : start + len(message)] = np.frombuffer(message, np.uint8)
        finally:
            reader.close()
        return PageRun(relation.layout, buffer, np.arange(len(table)), starts, table.rows, nbytes)

    def close(self) -> None:
        """Release R's pages and close its files."""
        self._run = None
        super().close()


def _split_memory(memory: MemoryBudget, relation: AnyRelation, spec: JoinSpec) -> MemorySplit:
    return split_lookup_memory(
        memory,
        relation,
        spec,
        purpose=f"all of {relation.path} in memory",
        index_bytes=buffer_bytes(relation.nbytes) + relation.num_pages * page_overhead(relation),
        shares=_SHARES,
    )
