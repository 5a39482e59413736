"""HybridJoin (HYBRIDJOIN): the oldest tuple picks the part of R to read, and all tuples in memory join it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar, Unpack

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.joins.base import SemiStreamJoin
from semistream.joins.condition.spec import JoinSpec
from semistream.joins.hybrid.cost_model import HybridJoinModel
from semistream.joins.hybrid.page_chains import PageNeeds, PageSpan, Stretches
from semistream.joins.hybrid.partition import Partitioner
from semistream.joins.hybrid.queue import StreamQueue
from semistream.joins.join_facts import JoinFacts
from semistream.joins.loop import Results
from semistream.joins.parts.emitter import Emitter
from semistream.joins.parts.intake import Intake
from semistream.joins.parts.memory_split import MemorySplit
from semistream.joins.parts.options import Check, at_least
from semistream.joins.requirements import JoinArguments
from semistream.kernels.array_types import Int64s
from semistream.relation import PageRun, Relation

_RUN_BUFFERS = 2  # the partition being joined, and the next one
_MOST_PACKET_BYTES = 32 << 20
_SEEK_BYTES = 320 << 10
_WORTH_MAKING_ROOM = 1 / 4  # compact the queue from this vacant share on if there is no room for new tuples
_WORTH_GIVING_BACK = 1 / 2  # compact from this share on in any case, so that it holds at most twice the live tuples


class HybridJoin(SemiStreamJoin):
    """HYBRIDJOIN: every iteration reads the part of R that the oldest tuple needs, found through R's index.

    All tuples in memory that this part can serve are joined with it and leave at once, wherever they are in the queue.
    The slots they vacate are the room for new tuples. Pages that many tuples ask for are thus read often, pages that
    none asks for never. No iteration waits for the stream: a step finishes the oldest tuple, unless its pages exceed
    one run, and a stream that pauses is finished by steps alone. The result is exact. Conditions may be ranges of R's
    key; a tuple then needs all pages in its range.

    =====================  ===================================================================================
    HYBRID                 here
    =====================  ===================================================================================
    w                      tuples admitted between two iterations: as many as there are vacated slots
    h_S                    ``slots`` of `StreamQueue`: the tuples that fit in the memory left by the other parts
    Q                      `StreamQueue`: the tuples in order of arrival
    H                      `PageChains`: the tuples by the pages of R they need
    p, v_P                 a run of pages, and their number: at most ``pages_per_step``
    index on R             the page table, searched by `PageChains`
    c_I/O(v_P)             the time to read ``seek_bytes``, which stands for a seek, plus the pages' bytes
    =====================  ===================================================================================

    The operator departs from Fig. 5 in four points:

    - A tuple may need several pages: a key of R may repeat over many pages, and a range may cover many. It meets each
      page once, with whichever partition brings it, and leaves when it has met all of them, matched or not;
      in the paper, unmatched tuples would stay forever. Tuples that no page can serve (a null key, a code between two
      pages) leave without a read.
    - The partition is not a fixed part of R. It lies around the pages that the oldest tuple still needs, where most
      tuples wait, and is as long as it pays (see `Partitioner`): a page if few tuples are in memory, a full buffer
      under load. Theorem 1 (no page is requested more often than MESHJOIN reads it) holds for the oldest tuples' pages.
      The pages read along with them are extra; reading them takes less time than the seeks they save.
    - Line 3 waits for w tuples in the stream buffer. Here the stream buffer is the pushed batch, and its tuples are
      admitted as far as there are slots.
    - New tuples only join the end of the queue, so the oldest tuple after an iteration is known before it. The next
      partition is read while this one is joined, and no page is read in vain.

    Parameters
    ----------
    relation : Relation
        The relation R, in pages clustered by key; plain Parquet is refused.
    stream : pyarrow.Schema or JoinSpec
        The columns of the stream, or a resolved join.
    pages_per_step : int, optional
        Most pages of a partition. Default: as many as fit in up to 4 MiB.
    seek_bytes : int
        Bytes that the disk reads in the time of a seek; a larger value makes larger partitions pay. Default: 320 KiB.
    **arguments
        Other parameters are those of `SemiStreamJoin`.

    Examples
    --------
    >>> import tempfile
    >>> from semistream import Relation
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stores = Relation.build(pa.table({"id": [1, 2], "city": ["Athens", "Bonn"]}), f"{folder}/r", key="id")
    ...     sales = pa.record_batch({"store": [2, 3, 2]})
    ...     with HybridJoin(stores, sales.schema, on={"store": "id"}, memory="1MB") as join:
    ...         pushed = list(join.push(sales))  # tuples wait while there is room
    ...         pushed, [batch.to_pydict() for batch in join.step()], join.stats.unmatched
    ([], [{'store': [2, 2], 'city': ['Bonn', 'Bonn']}], 1)

    References
    ----------
    HYBRID 4: Fig. 5, Theorem 1.
    """

    name = "hybrid"
    needs_index = True
    options: ClassVar[Mapping[str, Check]] = {"pages_per_step": at_least(1), "seek_bytes": at_least(0)}

    def __init__(
        self,
        relation: Relation,
        stream: pa.Schema | JoinSpec,
        *,
        pages_per_step: int | None = None,
        seek_bytes: int = _SEEK_BYTES,
        **arguments: Unpack[JoinArguments],
    ) -> None:
        self.require_options({"pages_per_step": pages_per_step, "seek_bytes": seek_bytes})
        self._pages_per_step = pages_per_step
        self._seek_bytes = seek_bytes
        super().__init__(relation, stream, **arguments)

    @classmethod
    def model(cls, facts: JoinFacts, memory: MemoryBudget) -> HybridJoinModel:
        """Return the cost model with as many slots and as large a partition as fit in ``memory``."""
        relation = facts.relation
        assert isinstance(relation, Relation)
        split, _ = _split_memory(memory, relation, facts.spec)
        page_bytes = max(relation.nbytes // max(relation.num_pages, 1), 1)
        return HybridJoinModel(
            waiting_rows=max(split.slots * (1 - _WORTH_MAKING_ROOM / 2), 1),
            run_pages=max(min(split.run_bytes // page_bytes, split.run_pages), 1),
            seek_bytes=_SEEK_BYTES * relation.segments,
            packet_rows=min(split.admit_rows, StreamQueue.chunk_rows_of(split.slots)),
        )

    def arrange(self) -> None:
        relation = self.relation
        split, needs = _split_memory(self._memory, relation, self.spec, run_pages=self._pages_per_step)
        # A packet is copied twice when the queue is compacted; nothing is staged then.
        packet_bytes = min(split.staging_bytes // 2, _MOST_PACKET_BYTES)
        self._queue = StreamQueue(split.slots, needs, self._memory, packet_bytes)
        self._partitioner = Partitioner(
            relation.table,
            run_bytes=split.run_bytes,
            run_pages=split.run_pages,
            seek_bytes=self._seek_bytes * relation.segments,
        )
        self._emitter = Emitter(self.spec, split, self._memory)
        self._reader = relation.reader(run_bytes=split.run_bytes, disk=self._disk, buffers=_RUN_BUFFERS)
        self._position = np.empty(split.matches, np.int64)
        self._page, self._row = (np.empty(split.matches, np.int32) for _ in range(2))
        self._intake = Intake(self.spec, split, self._memory)
        self._next: PageSpan | None = None  # the requested partition

    def pages_to_drain(self) -> int:
        return max(self._queue.pages_wanted - self._reader.pages_waiting, 0)

    def pages_asked(self) -> int:
        return self._reader.pages_waiting

    def feed(self, batch: pa.RecordBatch) -> Results:
        done = 0
        while done < batch.num_rows:
            admitted = self._admit(batch, done)
            done += admitted
            if admitted == 0 and self._queue.vacant_share >= _WORTH_MAKING_ROOM:
                yield from self._compact()
            elif admitted == 0:
                yield from self._iterate()
        yield from self._emitter.emit(self._queue)

    def _admit(self, batch: pa.RecordBatch, start: int) -> int:
        """Admit the tuples from ``start`` on that fit now; return their number."""
        room = min(self._queue.free, self._queue.chunk_rows)
        admitted = self._intake.admit(batch, start, room, self._queue.packet_bytes)
        if admitted is None:
            return 0
        self.stats.inserts += self._queue.admit(admitted)
        self.stats.rows_in += admitted.sizes.size
        self.stats.packets += 1
        return admitted.sizes.size

    def turn(self) -> Results:
        yield from self._iterate()
        yield from self._emitter.emit(self._queue)

    def drain(self) -> Results:
        while self._queue.live:
            yield from self._iterate()

    def _iterate(self) -> Results:
        """Do one iteration of HYBRID Fig. 5; results may stay staged for the next one to add to."""
        if not self._queue.live:
            return
        self.stats.steps += 1
        for tuples in self._queue.chains.hopeless():
            yield from self._finish(tuples)
        partition = self._next or self._ask_next()
        if partition is not None:
            yield from self._join(partition)
        if self._queue.vacant_share >= _WORTH_GIVING_BACK:
            yield from self._compact()

    def _ask_next(self, current: PageSpan | None = None) -> PageSpan | None:
        """Request the partition for the oldest tuple that needs more than ``current``; None if there is none."""
        needed = self._queue.next_pages(self._partitioner.run_pages, current)
        if needed is None:
            return None
        partition = self._partitioner.around(needed, self._queue.chains.waiting)
        self._reader.ask(np.arange(*partition))
        return partition

    def _join(self, partition: PageSpan) -> Results:
        """Join a partition with all tuples that have not met its pages, while the next one is read."""
        chains, run = self._queue.chains, self._reader.take()
        chains.waiting[partition.begin : partition.end] = 0
        self._next = self._ask_next(partition)
        self.stats.probes += int(run.rows.sum())
        for stretches in chains.meet(partition):
            yield from self._match(run, stretches)
            through = chains.through(stretches)
            self.stats.expiries += through.size
            yield from self._finish(through)
        self._queue.met(partition)
        self._reader.give_back()

    def _match(self, run: PageRun, stretches: Stretches) -> Results:
        """Join tuples with the rows of their pages in a run."""
        for tuples, page, row in self._queue.chains.pairs(stretches, run, self._position, self._page, self._row):
            joined = self._emitter.verified(self._queue, tuples, run, page, row)
            self._queue.mark(tuples[joined])
            if self.spec.pairs:
                yield from self._emitter.stage(self._queue, tuples[joined], run, page[joined], row[joined])

    def _finish(self, tuples: Int64s) -> Results:
        """Emit the final results of tuples that have met all their pages, and remove them."""
        if tuples.size == 0:
            return
        matched = self._queue.matched(tuples)
        yield from self._emitter.finished_tuples(self._queue, tuples, matched)
        self._done(self._queue, tuples, matched)
        self._queue.remove(tuples)

    def _compact(self) -> Results:
        """Release the memory of tuples that have left."""
        yield from self._emitter.emit(self._queue)
        for sizes in self._queue.compact():
            self._intake.release(sizes)

    def close(self) -> None:
        """Stop the background reader and close the files."""
        self._reader.close()


def _split_memory(
    memory: MemoryBudget, relation: Relation, spec: JoinSpec, run_pages: int | None = None
) -> tuple[MemorySplit, PageNeeds]:
    needs = PageNeeds.of(relation.table, single_codes=spec.condition.single_codes)
    split = MemorySplit.of(
        memory,
        relation,
        spec,
        purpose=f"a hybrid join with {relation.path}",
        index_bytes=relation.table.memory_bytes + needs.page_bytes,
        slots_bytes=partial(StreamQueue.index_bytes, needs),
        run_buffers=_RUN_BUFFERS,
        run_pages=run_pages,
    )
    return split, needs
