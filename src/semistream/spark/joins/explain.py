"""explain() on Spark: predict the performance of a join in each Python worker, and in all of them together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame

from semistream.budget import format_bytes
from semistream.costs.machine import Machine
from semistream.costs.prediction import Prediction
from semistream.errors import InvalidArgument
from semistream.joins.condition.condition import JoinOn
from semistream.joins.condition.spec import Columns
from semistream.pipelines.plan.join_plan import MICRO_BATCH_ROWS, JoinPlan
from semistream.pipelines.plan.key_ranges import cut_codes, part_bounds
from semistream.relation import Relation
from semistream.spark.arrow_types import arrow_schema_of
from semistream.spark.joins.join import open_given
from semistream.spark.session import require_classic
from semistream.spark.sql_rules import columns_as_named, on_as_named
from semistream.tuning.explain import explain_spec
from semistream.tuning.explanation import Explanation, require_rate
from semistream.tuning.wording import rate_text


@dataclass(frozen=True, repr=False)
class SparkExplanation:
    """Prediction for a join on Spark, made by `explain`; ``str()`` of it is a report.

    Workers share the disk, while each has a core of its own. `rate` is their rate together.

    Parameters
    ----------
    worker : Explanation
        Prediction for one worker with its share of each micro-batch, with ``route="none"``.
    routed : Explanation
        The same with ``route="range"``, where the worker reads only its part of R.
    slots : int
        Tasks that Spark runs at a time, each in a worker of its own.
    batch_rows : int
        Rows of a micro-batch.

    Examples
    --------
    >>> import tempfile, pyarrow as pa
    >>> from semistream import Relation
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     products = Relation.build(pa.table({"id": range(50_000)}), f"{folder}/r", key="id")
    ...     found = explain(spark.range(3), products, on="id", memory="1MB")
    >>> found.total_memory_bytes == found.slots * 1_000_000, found.routed_rate >= found.rate
    (True, True)

    References
    ----------
    docs/tuning.md, "Ask before you run".
    """

    worker: Explanation
    routed: Explanation
    slots: int
    batch_rows: int

    @property
    def total_memory_bytes(self) -> int:
        """Bytes of all workers together."""
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
                f"micro-batches of {rows} rows: {rate_text(self.rate)}, not counting Spark's own work",
                f"route='range' would give {rate_text(self.routed_rate)}: each worker reads and caches "
                f"{1 / self.slots:.0%} of R, at the cost of a shuffle of the stream",
                "each worker:",
                *(f"  {line}" for line in str(self.worker).splitlines()),
            ]
        )

    __repr__ = __str__


def explain(
    df: DataFrame,
    relation: Relation | str | Path,
    *,
    on: JoinOn | None = None,
    how: str = "inner",
    memory: int | str | None = None,
    columns: Columns | None = None,
    suffix: str = "_right",
    batch_rows: int = MICRO_BATCH_ROWS,
    rate: float | None = None,
    zipf: float = 0.0,
    machine: Machine | None = None,
) -> SparkExplanation:
    """Predict the performance of `semistream.spark.join` with these arguments, before anything runs.

    No row is read and nothing is written. Costs come from the profile of the driver's machine (`semistream.calibrate`
    with R's path), or from defaults without one; workers are assumed to be like the driver.

    Parameters
    ----------
    df : DataFrame
        The stream; only its columns matter.
    relation, on, how, memory, columns, suffix
        As in `join`.
    batch_rows : int
        Rows of a micro-batch, all of which are joined before the next one begins.
    rate : float, optional
        Rows per second of the stream, to learn whether the join keeps up.
    zipf : float
        Skew of the stream's keys; 0 if all are equally frequent.
    machine : Machine, optional
        Costs to assume instead of the driver's.

    Returns
    -------
    SparkExplanation
        Predictions for each worker and for all of them, with and without routing.

    Examples
    --------
    >>> import tempfile, pyarrow as pa
    >>> from semistream import Relation
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     products = Relation.build(pa.table({"id": range(50_000)}), f"{folder}/r", key="id")
    ...     print(explain(spark.range(3), products, on="id", memory="1MB"))
    2 task slots with 1 MB each: 2 MB in all
    ...

    References
    ----------
    docs/tuning.md, "Ask before you run".
    """
    require_rate(rate)
    if not isinstance(batch_rows, int) or batch_rows < 1:  # type: ignore[redundant-expr]  # callers may not check
        raise InvalidArgument(f"batch_rows is {batch_rows!r}; give a number above 0, the rows of a micro-batch.")
    df = require_classic(df)
    opened = open_given(relation)
    slots = df.sparkSession.sparkContext.defaultParallelism
    plan = JoinPlan.of(
        opened,
        arrow_schema_of(df),
        on=list(opened.key) if on is None else on_as_named(df, opened.schema, on),
        how=how,
        memory=memory,
        operator="auto",
        columns=columns_as_named(df, opened.schema, columns),
        suffix=suffix,
        options={},
    )
    predict = partial(explain_plan, plan, slots=slots, batch_rows=batch_rows, rate=rate, zipf=zipf, machine=machine)
    return explain_workers(opened, predict, slots, batch_rows)


def explain_plan(
    plan: JoinPlan,
    part: Relation,
    *,
    slots: int,
    batch_rows: int,
    rate: float | None,
    zipf: float,
    machine: Machine | None = None,
) -> Explanation:
    """Predict the operator with which a plan joins ``part`` in one of ``slots`` workers.

    The operator is the one that runs, unless the costs of another ``machine`` are assumed.
    """
    runs = plan.operator_for(part).name
    return explain_spec(
        part,
        plan.spec(part),
        plan.memory_bytes,
        zipf=zipf,
        rate=None if rate is None else rate / slots,
        batch_rows=batch_rows / slots,
        machine=machine,
        operator=runs if machine is None else None,
        holds_small=plan.holds_small,
    )


def owned_part(relation: Relation, cuts: tuple[int, ...]) -> Relation:
    """Return the part of R that one worker owns if R is divided by ``cuts``; all of R without cuts."""
    return relation.part(*part_bounds(cuts, 0)) if cuts else relation


def explain_workers(
    relation: Relation, worker: Callable[[Relation], Explanation], slots: int, batch_rows: int
) -> SparkExplanation:
    """Combine the predictions that ``worker`` makes for all of R, and for the part of R that one worker would own."""
    return SparkExplanation(
        worker=worker(relation),
        routed=worker(owned_part(relation, cut_codes(relation, slots))),
        slots=slots,
        batch_rows=batch_rows,
    )
