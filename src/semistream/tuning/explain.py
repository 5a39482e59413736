"""explain(): predict a join in a given memory before it runs."""

from __future__ import annotations

import math
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
from semistream.errors import BUILD_ONE, InvalidArgument, NotARelation
from semistream.joins.condition.condition import JoinOn, key_pairs
from semistream.joins.condition.spec import Columns, JoinSpec, join_workload
from semistream.joins.condition.where import Where
from semistream.joins.engine.operator import EngineJoin
from semistream.kernels.array_types import Int64s
from semistream.keys.plain_types import plain_batch
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
    memory: int | str | None = None,
    rate: float | None = None,
    zipf: float | None = None,
    batch_rows: float | None = None,
    columns: Columns | None = None,
    suffix: str = "_right",
    machine: Machine | None = None,
) -> Explanation:
    """Predict which operator `join` would choose, its performance, and what would change the choice.

    Nothing is joined, and R's pages are not read. The prediction covers equality joins on R's whole key, with R
    clustered by key. It comes from the same tuner as ``join(..., operator="auto")``.

    The stream is described by a ``sample`` of its rows, or by its ``stream_schema`` and the skew ``zipf``. Without both
    sample and schema, it is assumed to have the columns of ``on`` and one 8-byte number.

    Parameters
    ----------
    relation : Relation or path
        The relation R, or the path of one.
    sample : pyarrow.RecordBatch or pyarrow.Table, optional
        Rows of the stream, in the order of arrival.
    stream_schema : pyarrow.Schema, optional
        Schema of the stream, if there is no sample.
    on, where, how, columns, suffix
        The terms of the join, as in `SemiStreamJoin`. Default of ``on``: R's key.
    memory : int or str
        Budget of the whole operator: bytes, text such as "64MB", or a share of R's bytes such as "10%". Default: a
        tenth of R, but at least 1 MB and what the operator needs.
    rate : float, optional
        Arrivals in tuples per second. Default: as fast as the operator accepts them.
    zipf : float, optional
        Zipf exponent of the stream's keys, if there is no sample. Default: 0, all keys equally frequent.
    batch_rows : float, optional
        Tuples of a micro-batch, at whose end no tuple may wait, as on Spark. Default: the stream is never drained.
    machine : Machine, optional
        Costs of the machine. Default: the profile of this machine and R's disk (`calibrate`), or default costs if there
        is none.

    Returns
    -------
    Explanation
        The choice with its rate, latency and memory split, the alternatives, and the choices in other memories.

    Examples
    --------
    >>> import tempfile
    >>> from semistream import Relation
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     numbers = Relation.build(pa.table({"k": range(10_000), "v": range(10_000)}), f"{folder}/r", key="k")
    ...     explained = explain(numbers, zipf=1.0, memory="1MB")
    >>> explained.choice.operator
    'engine'

    References
    ----------
    docs/tuning.md; MESH 3.3 (the two tuning problems).
    """
    opened = relation if isinstance(relation, AnyRelation) else open_relation(relation)
    require_rate(rate)
    _require_clustered(opened)
    if zipf is not None and sample is not None:
        raise InvalidArgument("zipf and sample both describe the key frequencies; give only one of them.")
    given = None if sample is None else _one_batch(sample)
    rows = None if given is None else plain_batch(given)
    if on is None and where is None:
        on = list(opened.key)
    schema = (
        given.schema
        if given is not None
        else stream_schema or keys_and_number(opened, opened.key if on is None else on)
    )
    spec = JoinSpec.of(opened, schema, on=on, where=where, how=how, columns=columns, suffix=suffix)
    _require_equality(opened, spec, f"always runs as operator {usual_operator(spec).name!r}, in any memory")
    if rows is not None:
        _require_keys(rows, spec)
    memory_bytes = (
        usual_operator(spec).default_memory(opened, spec, {})
        if memory is None
        else parse_bytes(memory, of=opened.nbytes)
    )
    every_batch = math.inf if batch_rows is None else batch_rows
    return explain_spec(
        opened, spec, memory_bytes, sample=rows, zipf=zipf, rate=rate, batch_rows=every_batch, machine=machine
    )


def explain_spec(
    relation: AnyRelation,
    spec: JoinSpec,
    memory_bytes: int,
    *,
    sample: pa.RecordBatch | None = None,
    zipf: float | None = None,
    rate: float | None = None,
    batch_rows: float = math.inf,
    machine: Machine | None = None,
    operator: str | None = None,
    holds_small: bool = False,
) -> Explanation:
    """Explain a resolved equality join on R's key; with ``operator``, one whose operator is chosen already.

    With ``holds_small``, an R that fits in the memory is held there, as on Spark.
    """
    require_rate(rate)
    _require_clustered(relation)
    _require_equality(relation, spec, f"runs as operator {operator!r} in this memory")
    if zipf is not None and not 0 <= zipf <= MAX_EXPONENT:
        raise InvalidArgument(f"zipf is {zipf}; give a number from 0 (all keys equally frequent) to {MAX_EXPONENT:g}.")
    codes = None if sample is None else spec.condition.ranges(sample).asked
    workload = _workload(relation, spec, _frequencies(relation, codes, zipf), rate, batch_rows)
    profile = machine or load_profile(relation.path)
    tuner = join_tuner(relation, spec, workload, profile or DEFAULT_MACHINE, sample, holds_small=holds_small)
    explanation = Explanation.of(
        tuner,
        memory_bytes,
        calibrated=profile is not None,
        most_bytes=relation.nbytes,  # enough to hold all of R
        operator=operator,
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
    """Describe an equality join on R's key for the models, with key frequencies of the sample or of a Zipf law."""
    codes = None if sample is None else spec.condition.ranges(sample).asked
    return _workload(relation, spec, _frequencies(relation, codes, zipf), rate, batch_rows)


def _frequencies(relation: AnyRelation, codes: Int64s | None, zipf: float | None) -> KeyFrequencies:
    """Return key frequencies by the Zipf exponent if given, else from the codes of a sample, else uniform ones."""
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
    """Raise an error for an R that leaves no choice: unclustered or empty."""
    if not relation.clustered:
        raise NotARelation(
            f"{relation.path} is plain Parquet: it can only be scanned, by 'mesh', 'adaptive_mesh' or 'cmesh'. "
            f"Predictions need a relation clustered by key. {BUILD_ONE}"
        )
    if not relation.num_pages:
        raise InvalidArgument(f"{relation.path} has no rows: there is nothing to plan for.")


def _require_equality(relation: AnyRelation, spec: JoinSpec, runs: str) -> None:
    """Raise an error for a join without predictions, which says how it ``runs``."""
    if spec.condition.access != "equality":
        raise InvalidArgument(
            f"predictions cover joins on equality with R's whole key ({', '.join(relation.key)}), but the "
            f"condition is {spec.condition.text}. Such a join {runs}."
        )


def _one_batch(sample: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
    if not sample.num_rows:
        raise InvalidArgument("the sample has no rows; give rows of the stream, in the order of arrival.")
    return sample if isinstance(sample, pa.RecordBatch) else sample.combine_chunks().to_batches()[0]


def _require_keys(sample: pa.RecordBatch, spec: JoinSpec) -> None:
    """Raise an error for a sample with a key column of nulls only."""
    for name in spec.condition.stream_keys:
        if sample.column(name).null_count == sample.num_rows:
            raise InvalidArgument(f"the sample has only nulls in {name!r}, a key of the join; give a sample with keys.")


def keys_and_number(relation: AnyRelation, on: JoinOn) -> pa.Schema:
    """Return the schema of a stream with the key columns of the join and one 8-byte number."""
    pairs = key_pairs(on)
    relation.require_columns(list(pairs.values()))
    fields = [relation.schema.field(right).with_name(left) for left, right in pairs.items()]
    number = next(name for name in ("value", "_value", "__value") if name not in pairs)
    return pa.schema([*fields, pa.field(number, pa.int64())])
