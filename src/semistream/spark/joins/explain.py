"""explain() on Spark: what a join will do in each Python worker, and what all of them make together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame

from semistream.budget import format_bytes, parse_bytes
from semistream.costs.machine import Machine
from semistream.costs.prediction import Prediction
from semistream.joins.condition.condition import JoinOn
from semistream.pipelines.plan.join_plan import MICRO_BATCH_ROWS
from semistream.pipelines.plan.key_ranges import cut_codes, part_bounds
from semistream.relation import Relation
from semistream.spark.arrow_types import arrow_schema_of
from semistream.spark.session import require_classic
from semistream.tuning.explain import explain as explain_join
from semistream.tuning.explanation import Explanation, require_rate
from semistream.tuning.wording import rate_text


@dataclass(frozen=True)
class SparkExplanation:
    """What a ``worker`` is expected to do with its part of each micro-batch, of ``slots`` that run at a time.

    ``memory`` is what each has, so all of them have `total_memory_bytes`. They share the disk, while each has a core of
    its own: `rate` is what they take together. ``routed`` is the same for workers that each have a range of R's keys.
    """

    worker: Explanation
    routed: Explanation
    slots: int
    batch_rows: int

    @property
    def total_memory_bytes(self) -> int:
        """What all workers hold that run at a time."""
        return self.slots * self.worker.memory_bytes

    @property
    def rate(self) -> float:
        """Rows per second of all workers together."""
        return self._together(self.worker.choice)

    @property
    def routed_rate(self) -> float:
        """Rows per second with ``route="range"``."""
        return self._together(self.routed.choice)

    def _together(self, choice: Prediction) -> float:
        return 1 / max(choice.disk_s, choice.processor_s / self.slots)

    def __str__(self) -> str:
        rows = f"{self.batch_rows:,}"
        memory, total = format_bytes(self.worker.memory_bytes), format_bytes(self.total_memory_bytes)
        return "\n".join(
            [
                f"{self.slots} task slots with {memory} each: {total} in all",
                f"micro-batches of {rows} rows: {rate_text(self.rate)} without Spark's own work",
                f"route='range' would give {rate_text(self.routed_rate)}: each worker reads and caches "
                f"{1 / self.slots:.0%} of R, for a shuffle of the stream",
                "each worker:",
                *(f"  {line}" for line in str(self.worker).splitlines()),
            ]
        )


def explain(
    df: DataFrame,
    relation: Relation | str | Path,
    *,
    on: JoinOn | None = None,
    how: str = "inner",
    memory: int | str = "10%",
    columns: Sequence[str] | None = None,
    suffix: str = "_right",
    batch_rows: int = MICRO_BATCH_ROWS,
    rate: float | None = None,
    zipf: float = 0.0,
    machine: Machine | None = None,
) -> SparkExplanation:
    """What `semistream.spark.join` with these arguments is expected to do, before anything runs.

    ``batch_rows`` is how many rows a micro-batch has, each of which is drained; ``rate`` how many rows come in a
    second, and ``zipf`` the skew of their keys. The costs are those of the driver's machine: its profile
    (`semistream.calibrate` with R's path), or the defaults. ``memory`` is that of each Python worker, as in `join`.

    >>> print(explain(orders, "warehouse/products", on={"product": "id"}, memory="256MB"))  # doctest: +SKIP
    """
    require_rate(rate)
    df = require_classic(df)
    opened = relation.refreshed() if isinstance(relation, Relation) else Relation.open(relation)
    slots = df.sparkSession.sparkContext.defaultParallelism
    memory_bytes, schema = parse_bytes(memory, of=opened.nbytes), arrow_schema_of(df)

    def worker(part: Relation) -> Explanation:
        return explain_join(
            part,
            stream_schema=schema,
            on=on,
            how=how,
            memory=memory_bytes,
            rate=None if rate is None else rate / slots,
            zipf=zipf,
            batch_rows=batch_rows / slots,
            columns=columns,
            suffix=suffix,
            machine=machine,
        )

    return explain_workers(opened, worker, slots, batch_rows)


def explain_workers(
    relation: Relation, worker: Callable[[Relation], Explanation], slots: int, batch_rows: int
) -> SparkExplanation:
    """What all workers do, by what a ``worker`` does with the whole relation, and with the part that it would own."""
    cuts = cut_codes(relation, slots)
    return SparkExplanation(
        worker=worker(relation),
        routed=worker(relation.part(*part_bounds(cuts, 0)) if cuts else relation),
        slots=slots,
        batch_rows=batch_rows,
    )
