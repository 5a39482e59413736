"""The contract of a semi-stream join: driven by push, step and flush, exact, inside one byte budget."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import ClassVar, Self, TypedDict

import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.errors import InvalidArgument, JoinInProgress
from semistream.joins.condition import JoinOn
from semistream.joins.spec import JoinSpec
from semistream.joins.stats import JoinStats
from semistream.joins.where import Where
from semistream.relation import Disk, DiskCounts, Relation

Results = Iterator[pa.RecordBatch]


class JoinArguments(TypedDict, total=False):
    """What every operator takes besides the relation and the stream; see `SemiStreamJoin`."""

    on: JoinOn | None
    where: Where | None
    how: str
    memory: int | str
    columns: Sequence[str] | None
    suffix: str
    disk: str | Disk


class SemiStreamJoin(ABC):
    """Joins a stream, pushed batch by batch, with a relation on disk.

    `push` takes a batch of any size and makes room by stepping, `step` does one iteration of the operator's loop, and
    `flush` steps until no tuple waits. Each gives an iterator of results in bounded batches: work is done as it is
    consumed, and it must be consumed to its end before the operator is driven on. The results of all calls together
    are, as a multiset, exactly the batch join of all rows pushed, whatever the batches were.

    Parameters: ``relation`` R; ``stream_schema`` the columns of S; ``on`` a column, several, or a mapping from the
    stream's to the relation's, which must be equal; ``where`` what else must hold: comparisons as text (``"s.at BETWEEN
    r.since AND r.until"``, ``"abs(s.x - r.k) <= 5"``), Arrow expressions over the joined row, or a sequence of both;
    ``how`` inner, left, semi or anti; ``memory`` all that the operator may use, in bytes or as a share of R;
    ``columns`` those of R to give out (all but those that ``on`` names); ``suffix`` for names that S has too; ``disk``
    how R is read. Nulls match nothing.

    An operator that ``needs_index`` finds rows by R's key, and refuses conditions that do not pin it down.
    """

    name: ClassVar[str]
    needs_index: ClassVar[bool] = False

    def __init__(
        self,
        relation: Relation,
        stream_schema: pa.Schema,
        *,
        on: JoinOn | None = None,
        where: Where | None = None,
        how: str = "inner",
        memory: int | str = "10%",
        columns: Sequence[str] | None = None,
        suffix: str = "_right",
        disk: str | Disk = "auto",
    ) -> None:
        self.relation = relation
        self.spec = JoinSpec.of(relation, stream_schema, on=on, where=where, how=how, columns=columns, suffix=suffix)
        if self.needs_index:
            self.spec.condition.require_index(self.name, relation)
        self.budget = MemoryBudget(memory, of=relation.nbytes)
        self.stats = JoinStats(budget_bytes=self.budget.limit)
        self._disk = relation.disk(disk)
        self._busy: str | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the results."""
        return self.spec.schema

    def push(self, batch: pa.RecordBatch) -> Results:
        """Take a batch; results come out when room has to be made for it."""
        declared = self.spec.stream_schema
        if batch.schema.names != declared.names or batch.schema.types != declared.types:
            raise InvalidArgument(
                f"a batch has the columns ({_describe(batch.schema)}), but the stream was declared with "
                f"({_describe(declared)}). Select and cast it first."
            )
        return self._drive("push", self._push(batch))

    def step(self) -> Results:
        """One iteration of the operator's loop; does nothing while no tuple waits."""
        return self._drive("step", self._step())

    def flush(self) -> Results:
        """Step until no tuple waits."""
        return self._drive("flush", self._flush())

    def close(self) -> None:
        """End the background reader and close files. Tuples that still wait are dropped."""
        self._disk.close()

    @property
    def _disk_counts(self) -> DiskCounts:
        return self._disk.counts

    @abstractmethod
    def _push(self, batch: pa.RecordBatch) -> Results: ...

    @abstractmethod
    def _step(self) -> Results: ...

    def _flush(self) -> Results:
        while self.stats.rows_waiting:
            yield from self._step()

    def _drive(self, call: str, results: Results) -> Results:
        if self._busy is not None:
            raise JoinInProgress(
                f"the results of {self._busy}() have not been consumed to their end; {call}() cannot start. "
                f"Write `for batch in operator.{self._busy}(...)`, or list(...)."
            )
        self._busy = call
        return self._driven(results)

    def _driven(self, results: Results) -> Results:
        for batch in results:
            self.stats.outputs += batch.num_rows
            yield batch
        self.stats.count_disk(self._disk_counts)
        self.stats.peak_bytes = self.budget.peak
        self._busy = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _describe(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
