"""Plan the steps of a pipeline for its workers: on the driver, one after the other, over the columns so far.

Errors name the step, and use the names of the pipeline's settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa

from semistream.budget import format_bytes, parse_bytes
from semistream.errors import BudgetError, ColumnNotFound, InvalidArgument, KeyTypeError, NotARelation
from semistream.joins.condition.condition import key_pairs
from semistream.joins.engine.operator import EngineJoin
from semistream.joins.lookup.resident import ResidentJoin
from semistream.pipelines.overload.arrival_times import CARRIED_SAMPLE
from semistream.pipelines.plan.join_plan import JoinPlan
from semistream.pipelines.plan.key_ranges import cut_codes
from semistream.pipelines.plan.step_memory import share_steps
from semistream.pipelines.spec.durations import parse_duration
from semistream.pipelines.spec.pipeline_spec import PipelineSpec
from semistream.pipelines.spec.source_spec import RESERVED, FileSource
from semistream.pipelines.spec.step_spec import (
    ChangesStep,
    DeduplicateStep,
    JoinStep,
    KeyedStep,
    StepSpec,
    SurrogateKeyStep,
)
from semistream.pipelines.steps.chain import ROW, Link
from semistream.pipelines.steps.duplicates import SeenKeys
from semistream.pipelines.steps.snapshot_changes import BEFORE, ChangesPlan
from semistream.pipelines.steps.surrogate_keys import NUMBER, SOURCE, SurrogateKeys
from semistream.pipelines.task.batch_task import SINCE
from semistream.pipelines.task.routed_keys import RoutedKeys
from semistream.relation import Relation


@contextmanager
def errors_of_step(number: int, label: str, *, steps: int, memory: int) -> Iterator[None]:
    """Prefix errors in the block with the ``number`` and ``label`` of a step, one of ``steps`` that join.

    ``memory`` is the step's share of the pipeline's memory, in bytes.

    >>> with errors_of_step(2, "products", steps=3, memory=100):
    ...     raise ColumnNotFound("x", ["__row", "id"], where="the stream")
    Traceback (most recent call last):
    ...
    semistream.errors.ColumnNotFound: step 2 (products): the stream has no column 'x'; it has 'id'.
    """
    step = f"step {number} ({label})"
    try:
        yield
    except ColumnNotFound as error:
        known = [name for name in error.available if not name.startswith(RESERVED)]
        raise ColumnNotFound(error.column, known, where=f"{step}: {error.where}") from error
    except BudgetError as error:
        if error.least_bytes is None:
            raise
        least = steps * error.least_bytes
        raise BudgetError(
            f"{step} has {format_bytes(memory)} of each worker's memory, its share beside the other {steps - 1} steps "
            f"that join, and needs at least {format_bytes(error.least_bytes)}. Raise the pipeline's memory to at least "
            f"{format_bytes(least)} ({least} bytes).",
            least_bytes=least,
        ) from error
    except (InvalidArgument, KeyTypeError, NotARelation) as error:
        raise type(error)(f"{step}: {error}") from error


_NEVER_S = float("inf")
_ROWS_IN_MEMORY = 64  # rows of the largest valid size that fit into the memory of a join
_MARKER = f"{RESERVED}matched"  # R's key column, if only the join needs it and columns are renamed
_MOST_OWNERS = 8  # the most tasks that each read all rows of a batch and keep their own
_CACHE_SHARE = 0.5  # share of a join's memory for its cache, if rows with hot keys do not wait
_COUNTS_SHARE = 1 / 16  # share of the memory for the match counts of keys, if rows may be shed


@dataclass(frozen=True)
class StepPlan:
    """Plan of a step: its join, and the link that turns results into rows that go on.

    Rows wait up to ``retry_s`` seconds for a match. ``keys`` is set for steps that add keys to their relation.
    """

    join: JoinPlan
    link: Link
    retry_s: float = _NEVER_S
    keys: SurrogateKeys | SeenKeys | None = None

    @property
    def passed_on(self) -> pa.Schema:
        """Columns of rows that go on."""
        return self.link.passed_on(self.join.schema)


@dataclass(frozen=True)
class StepPlans:
    """Plans of all steps of a pipeline, and the constant columns that its joins need."""

    steps: tuple[StepPlan, ...]
    source: pa.Schema
    constants: Mapping[str, str] = field(default_factory=dict)
    changes: ChangesPlan | None = None
    read_by_owners: RoutedKeys | None = None
    """Owner of each row, if tasks read all of the source's files and keep their own rows."""
    counts_bytes: int = 0
    slots: int = 1
    """Tasks that run at a time."""

    @property
    def paths(self) -> list[str]:
        """Paths of the relations, in the order of the steps."""
        return [step.join.path for step in self.steps]

    @property
    def most_row_bytes(self) -> int:
        """Bytes of the largest valid row: every join has room for some."""
        return min(step.join.memory_bytes for step in self.steps) // _ROWS_IN_MEMORY

    @property
    def sends_rows(self) -> bool:
        """True if Spark sends rows to the tasks that own them."""
        return bool(self.steps[0].join.cuts) and self.read_by_owners is None

    @property
    def entering(self) -> tuple[pa.Schema, ...]:
        """Columns of the rows that enter each link."""
        return tuple(step.join.stream_schema for step in self.steps)

    @property
    def joined(self) -> pa.Schema:
        """Columns of the rows that have passed all steps."""
        if self.changes is not None:
            return self.source.append(pa.field(self.changes.into, pa.string()))
        return pa.schema([each for each in self.steps[-1].passed_on if not each.name.startswith(RESERVED)])


def plan_steps(spec: PipelineSpec, source: pa.Schema, slots: int = 1) -> StepPlans:
    """Plan the steps of a pipeline over source rows with the columns ``source``; share its memory for the best rate.

    ``slots`` is the number of tasks that run at a time. With routing, each of them owns a part of R.
    """
    parts = [part for step in spec.steps if (part := _joining(step)) is not None]
    constants = {
        f"{RESERVED}source_{i}": part.source
        for i, part in enumerate(parts)
        if isinstance(part, SurrogateKeyStep) and part.source is not None
    }
    own = [pa.field(ROW, pa.int64()), pa.field(SINCE, pa.int64()), *(pa.field(name, pa.string()) for name in constants)]
    schema = pa.schema([*source, *own, *_sample_columns(spec, source)])
    total = parse_bytes(spec.memory, of=_largest(parts))
    counts_bytes = 0 if spec.overload is None else int(total * _COUNTS_SHARE)
    total -= counts_bytes
    if isinstance(parts[0], ChangesStep):
        with errors_of_step(1, parts[0].relation.name, steps=1, memory=total):
            return _changes(parts[0], source, schema, total)
    steps: list[StepPlan] = []
    hot_first = spec.latency is not None
    shares = share_steps([part.relation for part in parts], total)
    for i, (part, memory) in enumerate(zip(parts, shares, strict=True)):
        constant = f"{RESERVED}source_{i}"
        with errors_of_step(i + 1, part.relation.name, steps=len(parts), memory=memory):
            step = _planned(part, schema, memory, constant if constant in constants else None, hot_first=hot_first)
        schema = step.passed_on
        if twice := sorted({name for name in schema.names if schema.names.count(name) > 1}):
            raise InvalidArgument(
                f"step {i + 1} adds a second column {twice[0]!r}; choose another name with `into` or `suffix`."
            )
        steps.append(step)
    by_owners = _owners_can_read(spec, source, steps[0].join)
    divides = by_owners and not hot_first and _worth_dividing(steps[0].join, slots)
    if spec.route == "range" or (spec.route == "auto" and divides):
        if spec.overload is not None and not by_owners:
            raise InvalidArgument(
                "overload cannot be combined with route: range if Spark must send rows to the workers that own them, "
                "because it computes columns or the source lacks the first step's key: they arrive in no fixed "
                "order, and a replay would shed others. Leave route out."
            )
        steps[0] = _routed(steps[0], slots)
    owners = _routed_keys(steps[0].join) if by_owners else None
    return StepPlans(tuple(steps), source, constants, read_by_owners=owners, counts_bytes=counts_bytes, slots=slots)


def _owners_can_read(spec: PipelineSpec, source: pa.Schema, plan: JoinPlan) -> bool:
    """True if tasks can read the source's files themselves and find their own rows in them."""
    files = isinstance(spec.source, FileSource) and spec.source.format == "parquet"
    as_read = source.names == spec.source.arrow_schema.names  # no computed columns
    return files and as_read and plan.access == "equality" and set(plan.stream_keys) <= set(source.names)


def _worth_dividing(plan: JoinPlan, slots: int) -> bool:
    """True if each task should own a part of R: with 2 to 8 slots, unless all of R fits the memory of each."""
    if not 1 < slots <= _MOST_OWNERS:
        return False
    return plan.operator_for(Relation.open(plan.path)) is not ResidentJoin


def _sample_columns(spec: PipelineSpec, source: pa.Schema) -> list[pa.Field]:
    """Return the weight columns that rows of a sample carry; none if weights are off."""
    if spec.overload is None or not spec.overload.weights:
        return []
    if taken := [name for name in CARRIED_SAMPLE.names if name in source.names]:
        raise InvalidArgument(f"overload: rows get weights, but the source has a column {taken[0]!r}; rename it.")
    return list(CARRIED_SAMPLE)


def _routed(step: StepPlan, slots: int) -> StepPlan:
    """Divide R of a step into a part for each slot."""
    plan = step.join
    if plan.access != "equality":
        raise InvalidArgument(
            f"route: range sends rows to the part of {plan.path} that holds their key, but the first step does not "
            f"equate its key ({', '.join(plan.key)}). Leave route out, or put a step that does first."
        )
    return replace(step, join=replace(plan, cuts=cut_codes(Relation.open(plan.path), slots)))


def _routed_keys(plan: JoinPlan) -> RoutedKeys | None:
    """Return the rule that finds the owner of a row; None if R is not divided."""
    return RoutedKeys(plan.stream_keys, plan.key, plan.key_types, plan.cuts) if plan.cuts else None


def _joining(step: StepSpec) -> JoinStep | KeyedStep | None:
    return step.join or step.keyed


def _largest(parts: Sequence[JoinStep | KeyedStep]) -> int:
    """Return the bytes of the largest relation, which a memory in percent refers to."""
    return (
        max(Relation.open(part.relation).nbytes if (part.relation / "CURRENT").exists() else 0 for part in parts) or 1
    )


def _planned(
    part: JoinStep | KeyedStep, stream: pa.Schema, memory: int, constant: str | None, *, hot_first: bool
) -> StepPlan:
    if isinstance(part, JoinStep):
        return _join(part, stream, memory, hot_first=hot_first)
    if isinstance(part, SurrogateKeyStep):
        return _surrogate_key(part, stream, memory, constant)
    assert isinstance(part, DeduplicateStep)
    return _deduplicate(part, stream, memory)


def _join(step: JoinStep, stream: pa.Schema, memory: int, *, hot_first: bool) -> StepPlan:
    """Plan a join. With ``hot_first``, the operator always has a cache: rows with cached keys need not wait."""
    relation = Relation.open(step.relation)
    marker = relation.key[0]
    equated = () if step.on is None else tuple(key_pairs(_on(step)).values())
    if relation.null_key_rows and not set(relation.key) <= set(equated):
        raise InvalidArgument(
            f"{relation.path} has {relation.null_key_rows} rows with a null key, and the join does not equate its key "
            f"({', '.join(relation.key)}): a match with such a row would look like no match. Build the relation "
            "without these rows."
        )
    wanted = [] if step.how != "inner" else _columns(step, relation, equated)
    columns = wanted if marker in wanted else [*wanted, marker]
    renamed = {**step.columns} if isinstance(step.columns, Mapping) else {}
    cached = hot_first and step.operator == "auto"
    plan = JoinPlan.of(
        relation,
        stream,
        on=None if step.on is None else _on(step),
        where=None if step.where is None else [step.where] if isinstance(step.where, str) else list(step.where),
        how="left",
        memory=memory,
        operator=EngineJoin if cached else step.operator,
        columns={name: renamed.get(name, _MARKER) for name in columns} if renamed else columns,
        suffix=step.suffix,
        disk=step.disk,
        options={"cache_share": _CACHE_SHARE, **step.options} if cached else step.options,
        holds_small=step.operator == "auto" and not step.options,
    )
    link = Link(
        label=step.relation.name,
        how=step.how,
        width=len(stream),
        marker=len(stream) + columns.index(marker),
        keeps_marker=marker in wanted,
        missed={"null": "keep", "table": "end", "retry": "wait"}[step.unmatched],  # type: ignore[arg-type]
    )
    return StepPlan(plan, link, parse_duration(step.retry_for) if step.unmatched == "retry" else _NEVER_S)


def _surrogate_key(step: SurrogateKeyStep, stream: pa.Schema, memory: int, constant: str | None) -> StepPlan:
    looked_up = [*([constant] if constant else []), *step.key]
    key = _key_schema(step, stream)
    keys = SurrogateKeys(step.relation, pa.schema([*([(SOURCE, pa.string())] if constant else []), *key]))
    plan = _look_up(keys.relation, stream, looked_up, memory, [NUMBER])
    link = Link(
        label=step.relation.name,
        how="inner",
        width=len(stream),
        marker=len(stream),
        keeps_marker=True,
        missed="stall",
        keys=tuple(looked_up),
        into=step.into,
    )
    return StepPlan(plan, link, keys=keys)


def _deduplicate(step: DeduplicateStep, stream: pa.Schema, memory: int) -> StepPlan:
    keys = SeenKeys(step.relation, _key_schema(step, stream))
    plan = _look_up(keys.relation, stream, step.key, memory, [keys.relation.key[0]])
    link = Link(
        label=step.relation.name,
        how="first",
        width=len(stream),
        marker=len(stream),
        missed="stall",
        keys=step.key,
        flag=step.into if step.mode == "flag" else None,
    )
    return StepPlan(plan, link, keys=keys)


def _changes(step: ChangesStep, source: pa.Schema, stream: pa.Schema, memory: int) -> StepPlans:
    """Plan a left join with the previous snapshot, by a sweep: it has no cache, and so reads every row of R."""
    _key_schema(step, stream)
    if step.into in source.names:
        raise InvalidArgument(f"the source already has a column {step.into!r}; name another for changes with `into`.")
    if not (step.relation / "CURRENT").exists():
        Relation.build(source.empty_table(), step.relation, key=list(step.key))
    relation = Relation.open(step.relation)
    if relation.key != step.key or relation.schema.remove_metadata() != source.remove_metadata():
        raise InvalidArgument(
            f"{step.relation} is not a snapshot of the source: it has the columns ({', '.join(relation.schema.names)}) "
            f"and the key ({', '.join(relation.key)}). Give a new path; the relation is created there."
        )
    plan = JoinPlan.of(
        relation,
        stream,
        on=dict(zip(step.key, step.key, strict=True)),
        how="left",
        memory=memory,
        operator="sweep",
        columns=source.names,
        suffix=BEFORE,
        options={},
    )
    compared = tuple(name for name in source.names if name not in step.key)
    changes = ChangesPlan(len(stream), f"{step.key[0]}{BEFORE}", compared, step.into, step.emit)
    link = Link(step.relation.name, "inner", len(stream), plan.schema.names.index(changes.marker))
    return StepPlans((StepPlan(plan, link),), source, changes=changes)


def _look_up(
    relation: Relation, stream: pa.Schema, looked_up: Sequence[str], memory: int, columns: list[str]
) -> JoinPlan:
    return JoinPlan.of(
        relation,
        stream,
        on=dict(zip(looked_up, relation.key, strict=True)),
        how="left",
        memory=memory,
        operator="auto",
        columns=columns,
        suffix=f"{RESERVED}right",
        options={},
    )


def _key_schema(step: KeyedStep, stream: pa.Schema) -> pa.Schema:
    for name in step.key:
        if name not in stream.names or name.startswith(RESERVED):
            known = [each for each in stream.names if not each.startswith(RESERVED)]
            raise ColumnNotFound(name, known, where="its input")
    return pa.schema([stream.field(name).with_nullable(True) for name in step.key])


def _on(step: JoinStep) -> str | list[str] | dict[str, str]:
    assert step.on is not None
    return list(step.on) if isinstance(step.on, tuple) else step.on


def _columns(step: JoinStep, relation: Relation, equated: tuple[str, ...]) -> list[str]:
    """Return the columns of R in the result: those requested, or all that are not equated with the stream's."""
    if step.columns is not None:
        return relation.require_columns(list(step.columns) if isinstance(step.columns, Mapping) else step.columns)
    return [name for name in relation.schema.names if name not in equated]
