"""join() on Spark: join a DataFrame, batch or streaming, with a relation far larger than memory.

Each task joins the rows of its partition in a Python worker, with an operator that the worker keeps between tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from time import perf_counter
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType, UserDefinedType

from semistream.budget import format_bytes
from semistream.errors import InvalidArgument
from semistream.joins.base import SemiStreamJoin
from semistream.joins.condition.condition import JoinOn
from semistream.joins.condition.spec import Columns
from semistream.joins.condition.where import Where
from semistream.pipelines.carried_types import convert_batch
from semistream.pipelines.plan.join_plan import JoinPlan
from semistream.pipelines.plan.key_ranges import cut_codes
from semistream.pipelines.task.worker_joins import WORKER_JOINS, RoutedJoin, WorkerJoins
from semistream.relation import Relation
from semistream.relation.open import no_relation
from semistream.spark.arrow_types import arrow_schema_of
from semistream.spark.joins.join_metrics import COUNTS, observed, task_counts
from semistream.spark.joins.routing import quoted, route_rows
from semistream.spark.session import require_classic, worker_interpreter
from semistream.spark.sql_rules import columns_as_named, on_as_named, require_distinct_names, require_sql_equality


class JoinTask:
    """The join of a partition, under the name that Spark shows for it in its plan and its UI."""

    def __init__(self, plan: JoinPlan) -> None:
        self.plan = plan
        operator, memory = plan.operator.name, format_bytes(plan.memory_bytes)
        self.__name__ = f"join with {Path(plan.path).name} by {operator} in {memory}"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join the rows of a partition; tell its counts in a last row of their own."""
        counts: list[int] = []
        schema = with_counts(self.plan.spark_schema)
        for batch in join_partition(self.plan, batches, counts=counts):
            nothing = pa.nulls(batch.num_rows, schema.field(COUNTS).type)
            yield pa.RecordBatch.from_arrays([*batch.columns, nothing], schema=schema)
        if counts[0]:
            row = [_blank(field) for field in self.plan.spark_schema]
            yield pa.RecordBatch.from_arrays([*row, pa.array([counts], schema.field(COUNTS).type)], schema=schema)


def join_partition(
    plan: JoinPlan,
    batches: Iterator[pa.RecordBatch],
    kept: WorkerJoins = WORKER_JOINS,
    *,
    counts: list[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Join the rows of a partition with one version of R; yield all of their results, then extend ``counts``.

    No row stays in the operator when the task ends. Spark's replay of a task or micro-batch therefore gives the same
    results, in this worker or another.
    """
    with kept.lend(plan) as worker_join:
        begun, before = perf_counter(), worker_join.counts
        for batch in _join_all(RoutedJoin(worker_join), plan, batches):
            yield batch if plan.spark_schema == plan.schema else convert_batch(batch, plan.spark_schema)
        if counts is not None:
            counts += task_counts(before, worker_join.counts, perf_counter() - begun)


def with_counts(schema: pa.Schema) -> pa.Schema:
    """Return the schema of joined rows with a column for the counts of a task."""
    return schema.append(pa.field(COUNTS, pa.list_(pa.int64())))


def _blank(field: pa.Field) -> pa.Array:
    """Return one null, or one value of zero bytes where a column has no nulls: Spark reads those without looking."""
    nulls, type_ = pa.nulls(1, field.type), field.type
    if field.nullable:
        return nulls
    if pa.types.is_struct(type_):
        return pa.StructArray.from_arrays([_blank(child) for child in type_], fields=list(type_))
    if pa.types.is_nested(type_):
        return pa.array([[]], type_)
    return pa.Array.from_buffers(type_, 1, [None, *nulls.buffers()[1:]])


def _join_all(join: RoutedJoin, plan: JoinPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from join.push(convert_batch(batch, plan.stream_schema))
    yield from join.flush()


ROUTES = ("none", "range")


def open_given(relation: Relation | str | Path) -> Relation:
    """Return the current version of a relation that the user gave as such, or by its path."""
    if isinstance(relation, Relation):
        return relation.refreshed()
    if not isinstance(relation, str | Path):
        raise no_relation(relation, "semistream.spark.build_relation(df, path, key=...)")
    return Relation.open(relation)


def join(
    df: DataFrame,
    relation: Relation | str | Path,
    *,
    on: JoinOn | None = None,
    where: Where | None = None,
    how: str = "inner",
    memory: int | str | None = None,
    operator: str | type[SemiStreamJoin] = "auto",
    route: str = "none",
    columns: Columns | None = None,
    suffix: str = "_right",
    disk: str = "auto",
    name: str | None = None,
    **options: Any,
) -> DataFrame:
    """Join a DataFrame, batch or streaming, with a relation, exactly, within ``memory`` per Python worker.

    The result is the exact join. Every task joins all of its rows before it ends, so Spark's own replay makes a
    streaming query exactly-once. The operator stays in its Python worker between micro-batches, with its caches. This
    is soft state: if the worker is lost, the next one starts cold and gives the same rows.

    Every task joins with the version of R that is current when it starts. An update of R takes effect with the next
    micro-batch, without a restart. Invalid arguments raise a `SemistreamError` here, on the driver.

    Parameters
    ----------
    df : DataFrame
        The stream, with columns of any types that Arrow supports.
    relation : Relation, str or Path
        R, or its path. The driver and all executors need access to this path.
    on : str, sequence of str or mapping, optional
        Columns that must be equal: one name, several, or a mapping from the stream's columns to the relation's.
    where : str, Arrow expression or sequence of these, optional
        Further conditions, with or without ``on``: ``"s.at BETWEEN r.since AND r.until"``, ``"s.x < r.k"``,
        ``"abs(s.at - r.at) <= 5 minutes"``, several joined by AND, or an Arrow expression over the joined row.
    how : str
        ``"inner"``, ``"left"``, ``"semi"`` or ``"anti"``, or Spark's name of one, such as ``"left_outer"``. Nulls
        match nothing.
    memory : int or str
        Memory of the operator in each Python worker: bytes, text such as ``"64MB"``, or a share of R such as
        ``"10%"``. By default a tenth of R, but at least 1 MB and what the operator needs. A share is converted to
        bytes now, and does not grow with R. A worker keeps the operators of up to four joins, each with its own memory.
    operator : str or type
        ``"auto"``, the name of an operator, or its class.
    route : str
        ``"none"``: rows stay in their partitions, and every worker reads all of R. ``"range"``: a shuffle sends each
        row to the task that owns its range of keys, which reads and caches only its part of R. R is divided into as
        many parts as Spark has task slots. This needs an equality on R's key.
    columns : str, sequence of str or mapping, optional
        Columns of R in the result; by default all that ``on`` does not name. A mapping such as
        ``{"price": "unit_price"}`` gives them other names there.
    suffix : str
        Appended to the names of R's columns that the stream has too.
    disk : str
        Access to R: ``"direct"`` bypasses the page cache, so that the join uses no memory beyond ``memory``;
        ``"buffered"`` uses the page cache, for machines with memory to spare; ``"auto"`` is direct where the file
        system supports it.
    name : str, optional
        Name of the counts in Spark's progress reports (`join_metrics`); by default that of the relation and some random
        letters. Two joins in one query need different names.
    **options
        Options of the operator: strings, numbers or booleans.

    Returns
    -------
    DataFrame
        The stream's columns with those of R; a streaming DataFrame if ``df`` is one.

    Examples
    --------
    >>> import tempfile, pyarrow as pa
    >>> from semistream import Relation
    >>> orders = spark.createDataFrame([(2, 5), (9, 4)], "product long, amount long")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     products = Relation.build(pa.table({"id": [1, 2], "name": ["tea", "cola"]}), f"{folder}/r", key="id")
    ...     join(orders, products, on={"product": "id"}, memory="1MB").show()
    +-------+------+----+
    |product|amount|name|
    +-------+------+----+
    |      2|     5|cola|
    +-------+------+----+

    References
    ----------
    docs/operators.md; docs/architecture.md, "On Spark".
    """
    df = require_classic(df)
    if route not in ROUTES:
        raise InvalidArgument(f"route is {route!r}; give one of {', '.join(map(repr, ROUTES))}.")
    opened = open_given(relation)
    on, columns = on_as_named(df, opened.schema, on), columns_as_named(df, opened.schema, columns)
    require_sql_equality(df, opened.schema, on, where)
    plan = JoinPlan.of(
        opened,
        arrow_schema_of(df),
        on=on,
        where=where,
        how=how,
        memory=memory,
        operator=operator,
        columns=columns,
        suffix=suffix,
        disk=disk,
        options=options,
    )
    require_distinct_names(df, plan.schema.names, "Give R's column another name: columns={'V': 'V_right'}.")
    stream = df
    if route == "range":
        if plan.access != "equality":
            raise InvalidArgument(
                f"route='range' sends rows to the part of R that holds their key, but the condition does not equate "
                f"R's key ({', '.join(plan.key)}). Use route='none', or equate the key with on=."
            )
        plan = replace(plan, cuts=cut_codes(opened, df.sparkSession.sparkContext.defaultParallelism))
        stream = route_rows(df, plan)
    with worker_interpreter(df.sparkSession):
        # Named by position: mapInArrow rejects column names with a dot or a backtick.
        numbered = stream.toDF(*(f"c{i}" for i in range(len(df.columns))))
        joined = numbered.mapInArrow(JoinTask(plan), from_arrow_schema(with_counts(plan.spark_schema)))
    joined = observed(joined, f"{Path(plan.path).name}-{token_hex(2)}" if name is None else name)
    return _with_types_of(df, joined)


def _with_types_of(df: DataFrame, joined: DataFrame) -> DataFrame:
    """Cast the stream's columns back to Spark types that Arrow widens, such as ``time(3)`` and ``interval hour``."""
    wanted: StructType = df.schema
    given: StructType = joined.schema
    casts = {
        field.name: sf.col(quoted(field.name)).cast(field.dataType)
        for field, other in zip(wanted, given, strict=False)
        if field.dataType != other.dataType and not isinstance(field.dataType, UserDefinedType)
    }
    return joined.select(*(casts.get(name, sf.col(quoted(name))) for name in joined.columns)) if casts else joined
