"""The steps of a pipeline as plans for workers: checked on the driver, one after the other, on the columns so far.

Errors of a pipeline's step say which step it is, and speak of the pipeline's own settings.
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
    """Let errors in the block be those of a step by ``number`` and ``label``, of so many that join.

    ``memory`` is what it has of the pipeline's.

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
_MOST_OWNERS = 8  # tasks that read all rows of a batch, of which each keeps some
_CACHE_SHARE = 0.5  # of a join's memory, where rows of hot keys do not wait
_COUNTS_SHARE = 1 / 16  # of the memory, for how many matches keys have, where rows may be shed


@dataclass(frozen=True)
class StepPlan:
    """A join, and how its results become rows that go on."""

    join: JoinPlan
    link: Link
    retry_s: float = _NEVER_S
    keys: SurrogateKeys | SeenKeys | None = None

    @property
    def passed_on(self) -> pa.Schema:
        """The columns of rows that go on."""
        return self.link.passed_on(self.join.schema)


@dataclass(frozen=True)
class StepPlans:
    """All joins of a pipeline, the constants that rows get for them, and the columns of the rows that go in and out."""

    steps: tuple[StepPlan, ...]
    source: pa.Schema
    constants: Mapping[str, str] = field(default_factory=dict)
    changes: ChangesPlan | None = None
    read_by_owners: RoutedKeys | None = None
    """Which task owns a row, where tasks read the source's files themselves, rows of others too."""
    counts_bytes: int = 0
    slots: int = 1
    """How many tasks run at a time."""

    @property
    def paths(self) -> list[str]:
        """The relations, in the order of the steps."""
        return [step.join.path for step in self.steps]

    @property
    def sends_rows(self) -> bool:
        """Whether Spark sends rows to the tasks that own them."""
        return bool(self.steps[0].join.cuts) and self.read_by_owners is None

    @property
    def entering(self) -> tuple[pa.Schema, ...]:
        """The columns of rows that enter each link."""
        return tuple(step.join.stream_schema for step in self.steps)

    @property
    def joined(self) -> pa.Schema:
        """The columns of rows that have been through all steps."""
        if self.changes is not None:
            return self.source.append(pa.field(self.changes.into, pa.string()))
        return pa.schema([each for each in self.steps[-1].passed_on if not each.name.startswith(RESERVED)])


def plan_steps(spec: PipelineSpec, source: pa.Schema, slots: int = 1) -> StepPlans:
    """The steps of a pipeline whose rows come with the columns ``source``; they share its memory as is fastest.

    ``slots`` are the tasks that run at a time: where rows are routed, each of them has its part of R.
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
                f"step {i + 1} gives a second column {twice[0]!r}; name another by `into`, or a `suffix`."
            )
        steps.append(step)
    by_owners = _owners_can_read(spec, source, steps[0].join)
    divides = by_owners and not hot_first and _worth_dividing(steps[0].join, slots)
    if spec.route == "range" or (spec.route == "auto" and divides):
        if spec.overload is not None and not by_owners:
            raise InvalidArgument(
                "overload does not go with route: range where Spark has to send rows to the workers that own them, "
                "since it computes columns, or the first step's key is none of the source: they come there in no "
                "fixed order, and a replay would shed others. Leave route out."
            )
        steps[0] = _routed(steps[0], slots)
    owners = _routed_keys(steps[0].join) if by_owners else None
    return StepPlans(tuple(steps), source, constants, read_by_owners=owners, counts_bytes=counts_bytes, slots=slots)


def _owners_can_read(spec: PipelineSpec, source: pa.Schema, plan: JoinPlan) -> bool:
    """Whether tasks can tell from a file of the source which rows are theirs."""
    files = isinstance(spec.source, FileSource) and spec.source.format == "parquet"
    as_read = source.names == spec.source.arrow_schema.names  # Spark computes none of them
    return files and as_read and plan.access == "equality" and set(plan.stream_keys) <= set(source.names)


def _worth_dividing(plan: JoinPlan, slots: int) -> bool:
    """Whether tasks should have a part of R each, if no rows must be sent to them for that: unless each holds all."""
    if not 1 < slots <= _MOST_OWNERS:
        return False
    return plan.operator_for(Relation.open(plan.path)) is not ResidentJoin


def _sample_columns(spec: PipelineSpec, source: pa.Schema) -> list[pa.Field]:
    """The columns that rows of a sample carry, if they are to."""
    if spec.overload is None or not spec.overload.weights:
        return []
    if taken := [name for name in CARRIED_SAMPLE.names if name in source.names]:
        raise InvalidArgument(f"overload: rows get weights, but the source has a column {taken[0]!r}; rename it.")
    return list(CARRIED_SAMPLE)


def _routed(step: StepPlan, slots: int) -> StepPlan:
    """A step whose rows are sent to the task that owns their keys."""
    plan = step.join
    if plan.access != "equality":
        raise InvalidArgument(
            f"route: range sends rows to the part of {plan.path} that holds their key, but the first step does not "
            f"equate its key ({', '.join(plan.key)}). Leave route out, or let a step that does come first."
        )
    return replace(step, join=replace(plan, cuts=cut_codes(Relation.open(plan.path), slots)))


def _routed_keys(plan: JoinPlan) -> RoutedKeys | None:
    """Which task owns a row; None if R is not divided."""
    return RoutedKeys(plan.stream_keys, plan.key, plan.key_types, plan.cuts) if plan.cuts else None


def _joining(step: StepSpec) -> JoinStep | KeyedStep | None:
    return step.join or step.keyed


def _largest(parts: Sequence[JoinStep | KeyedStep]) -> int:
    """What a share of memory is a share of: the largest relation."""
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
    """A join; if hot rows are to leave first, one that always has a cache: rows whose keys are in it need not wait."""
    relation = Relation.open(step.relation)
    marker = relation.key[0]
    equated = () if step.on is None else tuple(key_pairs(_on(step)).values())
    if relation.null_key_rows and not set(relation.key) <= set(equated):
        raise InvalidArgument(
            f"{relation.path} has {relation.null_key_rows} rows with a null key, and the join does not equate its key "
            f"({', '.join(relation.key)}): whether a row has met one of them is not known. Build it without them."
        )
    wanted = [] if step.how != "inner" else _columns(step, relation, equated)
    columns = wanted if marker in wanted else [*wanted, marker]
    cached = hot_first and step.operator == "auto"
    plan = JoinPlan.of(
        relation,
        stream,
        on=None if step.on is None else _on(step),
        where=None if step.where is None else [step.where] if isinstance(step.where, str) else list(step.where),
        how="left",
        memory=memory,
        operator=EngineJoin if cached else step.operator,
        columns=columns,
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
    """A left join with all of the snapshot before: by a sweep, which has no cache and so meets every row of R."""
    _key_schema(step, stream)
    if step.into in source.names:
        raise InvalidArgument(f"the source has a column {step.into!r} already; name another for changes by `into`.")
    if not (step.relation / "CURRENT").exists():
        Relation.build(source.empty_table(), step.relation, key=list(step.key))
    relation = Relation.open(step.relation)
    if relation.key != step.key or relation.schema.remove_metadata() != source.remove_metadata():
        raise InvalidArgument(
            f"{step.relation} is no snapshot of the source: it has the columns ({', '.join(relation.schema.names)}) "
            f"and the key ({', '.join(relation.key)}). Give a path where there is none: it is made."
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
            raise ColumnNotFound(name, known, where="a row that comes to it")
    return pa.schema([stream.field(name).with_nullable(True) for name in step.key])


def _on(step: JoinStep) -> str | list[str] | dict[str, str]:
    assert step.on is not None
    return list(step.on) if isinstance(step.on, tuple) else step.on


def _columns(step: JoinStep, relation: Relation, equated: tuple[str, ...]) -> list[str]:
    """R's columns that come out: those asked for, or all that are not equated with the stream's."""
    if step.columns is not None:
        return relation.require_columns(step.columns)
    return [name for name in relation.schema.names if name not in equated]
