"""explain(): what a join would do in a memory, before it runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from semistream.budget import parse_bytes
from semistream.costs.key_frequencies import KeyFrequencies
from semistream.costs.machine import DEFAULT_MACHINE, Machine
from semistream.costs.profiles import load_profile
from semistream.costs.sampled_frequencies import frequencies_of_sample
from semistream.costs.workload import Workload
from semistream.datasets.zipf import MAX_EXPONENT
from semistream.errors import InvalidArgument, NotARelation
from semistream.joins.condition.condition import JoinOn, key_pairs
from semistream.joins.condition.spec import JoinSpec, join_workload
from semistream.joins.condition.where import Where
from semistream.joins.engine.operator import EngineJoin
from semistream.kernels.array_types import Int64s
from semistream.relation import AnyRelation, open_relation
from semistream.tuning.cache_curve import cache_curve
from semistream.tuning.candidates import join_tuner, usual_operator
from semistream.tuning.explanation import Explanation, require_rate


def explain(
    relation: AnyRelation | str | Path,
    *,
    sample: pa.RecordBatch | pa.Table | None = None,
    stream_schema: pa.Schema | None = None,
    on: JoinOn | None = None,
    where: Where | None = None,
    how: str = "inner",
    memory: int | str = "10%",
    rate: float | None = None,
    zipf: float | None = None,
    batch_rows: float | None = None,
    columns: Sequence[str] | None = None,
    suffix: str = "_right",
    machine: Machine | None = None,
) -> Explanation:
    """What ``join`` would choose for a stream and a memory, what to expect of it, and what would change the choice.

    The stream is known by a ``sample`` of its rows, in the order in which they come, or by its ``stream_schema`` and
    ``zipf``, the skew of its keys (0, all alike, if neither is given). Without rows or schema it is taken to have the
    columns of ``on`` and a number of eight bytes. ``on`` is R's key unless it is given. ``rate`` is how many tuples
    come in a second, and ``batch_rows`` after how many none may wait, as on Spark. ``machine`` is by default the
    profile of this machine and R's disk (``semistream calibrate``), or the defaults if there is none.

    >>> import tempfile
    >>> from semistream import Relation
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     numbers = Relation.build(pa.table({"k": range(10_000), "v": range(10_000)}), f"{folder}/r", key="k")
    ...     explained = explain(numbers, zipf=1.0, memory="1MB")
    >>> explained.choice.operator
    'engine'
    """
    opened = relation if isinstance(relation, AnyRelation) else open_relation(relation)
    require_rate(rate)
    _require_clustered(opened)
    if zipf is not None and sample is not None:
        raise InvalidArgument("zipf and sample both say how often keys come; give one of them.")
    if zipf is not None and not 0 <= zipf <= MAX_EXPONENT:
        raise InvalidArgument(f"zipf is {zipf}; give a number from 0 (all keys alike) to {MAX_EXPONENT:g}.")
    rows = None if sample is None else _one_batch(sample)
    if on is None and where is None:
        on = list(opened.key)
    schema = rows.schema if rows is not None else stream_schema or keys_and_number(opened, on or opened.key)
    spec = JoinSpec.of(opened, schema, on=on, where=where, how=how, columns=columns, suffix=suffix)
    if spec.condition.access != "equality":
        raise InvalidArgument(
            f"what to expect is known of joins on equality with R's whole key ({', '.join(opened.key)}), but the "
            f"condition is {spec.condition.text}. Such a join is done by the operator "
            f"{usual_operator(spec).name!r}, whatever the memory."
        )
    if rows is not None:
        _require_keys(rows, spec)
    codes = None if rows is None else spec.condition.ranges(rows).asked
    every_batch = math.inf if batch_rows is None else batch_rows
    workload = _workload(opened, spec, _frequencies(opened, codes, zipf), rate, every_batch)
    profile = machine or load_profile(opened.path)
    tuner = join_tuner(opened, spec, workload, profile or DEFAULT_MACHINE, rows)
    explanation = Explanation.of(
        tuner,
        parse_bytes(memory, of=opened.nbytes),
        calibrated=profile is not None,
        most_bytes=opened.nbytes,  # with more, all of R can be held
    )
    engine = next(candidate for candidate in tuner.candidates if candidate.name == EngineJoin.name)
    memories = [point.memory_bytes for point in explanation.curve]
    return replace(explanation, cache_curve=tuple(cache_curve(engine, memories, workload.frequencies, codes)))


def workload_of(
    relation: AnyRelation,
    spec: JoinSpec,
    sample: pa.RecordBatch | None = None,
    *,
    zipf: float | None = None,
    rate: float | None = None,
    batch_rows: float = math.inf,
) -> Workload:
    """A join on equality with R's key as the models see it: keys are asked for as in the sample, or by Zipf."""
    codes = None if sample is None else spec.condition.ranges(sample).asked
    return _workload(relation, spec, _frequencies(relation, codes, zipf), rate, batch_rows)


def _frequencies(relation: AnyRelation, codes: Int64s | None, zipf: float | None) -> KeyFrequencies:
    """How often keys are asked for: by Zipf if that is said, else as in the codes of a sample, else all alike."""
    keys = max(relation.num_rows, 1)
    if zipf is None and codes is not None and codes.size:
        return frequencies_of_sample(codes, keys)
    return KeyFrequencies.zipf(zipf or 0.0, keys)


def _workload(
    relation: AnyRelation, spec: JoinSpec, frequencies: KeyFrequencies, rate: float | None, batch_rows: float
) -> Workload:
    read = relation.reading(spec.relation_columns)
    return join_workload(read, spec, frequencies, rate=rate, batch_rows=batch_rows)


def _require_clustered(relation: AnyRelation) -> None:
    """Refuse an R for which there is nothing to choose."""
    if not relation.clustered:
        raise NotARelation(
            f"{relation.path} is plain Parquet: it can only be scanned, by 'mesh', 'adaptive_mesh' or 'cmesh'. What to "
            "expect is known of relations that are clustered by key. Relation.build(data, path, key=...) makes one."
        )
    if not relation.num_pages:
        raise InvalidArgument(f"{relation.path} has no rows: there is nothing to plan for.")


def _one_batch(sample: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
    if not sample.num_rows:
        raise InvalidArgument("the sample has no rows; give some of the stream's, in the order in which they come.")
    return sample if isinstance(sample, pa.RecordBatch) else sample.combine_chunks().to_batches()[0]


def _require_keys(sample: pa.RecordBatch, spec: JoinSpec) -> None:
    """Refuse a sample that says nothing of the stream's keys."""
    for name in spec.condition.stream_keys:
        if sample.column(name).null_count == sample.num_rows:
            raise InvalidArgument(
                f"the sample has no value in its column {name!r}, which is joined on; give another one."
            )


def keys_and_number(relation: AnyRelation, on: JoinOn) -> pa.Schema:
    """A stream of which no more is known than the columns that it is joined on."""
    pairs = key_pairs(on)
    relation.require_columns(list(pairs.values()))
    fields = [relation.schema.field(right).with_name(left) for left, right in pairs.items()]
    number = next(name for name in ("value", "_value", "__value") if name not in pairs)
    return pa.schema([*fields, pa.field(number, pa.int64())])
