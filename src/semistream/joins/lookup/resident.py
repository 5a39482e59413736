"""ResidentJoin: all of R in memory, for relations that fit the budget.

What looking tuples up in an R that is in memory costs.
"""

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
    """Look-ups of up to ``rows_at_once`` tuples together in an R that was read once: the disk takes no time.

    No tuple waits for another, so that results come with the push that asks for them.
    """

    rows_at_once: float

    def __post_init__(self) -> None:
        require_numbers(self, "rows_at_once", least=1)

    def work(self, workload: Workload, costs: DiskCosts) -> Work:  # noqa: ARG002
        """What each tuple takes of its look-up."""
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


_SHARES = Shares(admit=4, matches=8)  # what R leaves is for tuples: the more of them at once, the fewer steps


class ResidentJoin(LookupJoin):
    """Holds R's pages as they are on disk, of the column groups that the join needs, and looks every tuple up there.

    R is read once for each of its versions, when the first tuple comes. Each push is answered in itself: no tuple
    waits, whatever the batches are. This is not of the papers, whose R is far larger than the memory; but of several
    joins in a row some are with small relations (the stores and customers of a star schema), and a batch that a sweep
    would read R for takes nothing but look-ups here. A memory in which R does not fit is refused, and so is a version
    that has outgrown it. A condition must pin down R's key, to a value or to a range.

    >>> import tempfile
    >>> from semistream import Relation
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stores = Relation.build(pa.table({"id": [1, 2], "city": ["Athens", "Bonn"]}), f"{folder}/r", key="id")
    ...     sales = pa.record_batch({"store": [2, 3, 2]})
    ...     with ResidentJoin(stores, sales.schema, on={"store": "id"}, memory="1MB") as join:
    ...         [batch.to_pydict() for batch in join.push(sales)]
    [{'store': [2, 2], 'city': ['Bonn', 'Bonn']}]
    """

    name = "resident"

    @classmethod
    def model(cls, facts: JoinFacts, memory: MemoryBudget) -> ResidentModel:
        """Look-ups of as many tuples at once as are taken in together."""
        return ResidentModel(rows_at_once=_split_memory(memory, facts.relation, facts.spec).admit_rows)

    def arrange(self) -> None:
        self._set_up(_split_memory(self._memory, self.relation, self.spec))
        self._run: PageRun | None = None

    def feed(self, batch: pa.RecordBatch) -> Results:
        yield from super().feed(batch)
        yield from self.drain()
        self.stats.cache_hits = self.stats.rows_done

    def pages_to_drain(self) -> int:
        return 0  # nothing waits between two calls

    def _runs(self, low: Int64s, furthest: Int64s) -> Iterator[PageRun]:
        """All of R; what is asked for is found there by binary search."""
        del furthest
        if low.size and self.relation.num_pages:
            if self._run is None:
                self._run = self._read_whole()
            yield self._run

    def _read_whole(self) -> PageRun:
        """All pages, in the order of their codes, one behind the other in a buffer."""
        relation, table = self.relation, self.relation.table
        nbytes = np.array([segment.nbytes for segment in table.segments], np.int64)
        ends = np.cumsum(nbytes.sum(axis=0))
        starts = ends - np.cumsum(nbytes[::-1], axis=0)[::-1]  # a page's segments one behind the other
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
        """Let go of R's pages and files."""
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
