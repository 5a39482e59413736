"""explain(): what a join would do in a memory, before it runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa

from semistream.budget import parse_bytes
from semistream.errors import InvalidArgument
from semistream.joins.candidates import candidates
from semistream.joins.condition import JoinOn
from semistream.joins.spec import JoinSpec
from semistream.joins.where import Where
from semistream.relation import AnyRelation, open_relation
from semistream.tuning.explanation import Explanation, require_rate
from semistream.tuning.frequencies import KeyFrequencies
from semistream.tuning.machine import Machine
from semistream.tuning.profiles import load_profile, machine_for
from semistream.tuning.sampled_frequencies import frequencies_of_sample
from semistream.tuning.tuner import Tuner
from semistream.tuning.workload import Workload

_USEFUL = 1.25  # times R's bytes: more memory is of no use


def explain(
    relation: AnyRelation | str,
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
    ``zipf``, the skew of its keys (0, all alike, if neither is given). Without any of these it is taken to have R's key
    and a number of eight bytes. ``on`` is R's key unless it is given. ``rate`` is how many tuples come in a second, and
    ``batch_rows`` after how many none may wait, as on Spark. ``machine`` is by default the profile of this machine and
    R's disk (``semistream calibrate``), or the defaults if there is none.

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
    if zipf is not None and sample is not None:
        raise InvalidArgument("zipf and sample both say how often keys come; give one of them.")
    rows = None if sample is None else _one_batch(sample)
    schema = rows.schema if rows is not None else stream_schema or _key_and_number(opened)
    if on is None and where is None:
        on = list(opened.key)
    spec = JoinSpec.of(opened, schema, on=on, where=where, how=how, columns=columns, suffix=suffix)
    if spec.condition.access != "equality" or not opened.clustered:
        raise InvalidArgument(
            f"explain() speaks of joins on equality with R's whole key, but the condition is {spec.condition.text} "
            f"with {opened.path}. Name the operator: 'sweep' for ranges of the key, 'mesh' for all else."
        )
    if not opened.num_pages:
        raise InvalidArgument(f"{opened.path} has no rows: there is nothing to plan for.")
    workload = workload_of(
        opened, spec, rows, zipf=zipf, rate=rate, batch_rows=math.inf if batch_rows is None else batch_rows
    )
    profile = machine or load_profile(opened.path)
    tuner = Tuner(workload, profile or machine_for(opened.path), candidates(opened, spec, rows))
    return Explanation.of(
        tuner,
        parse_bytes(memory, of=opened.nbytes),
        calibrated=profile is not None,
        most_bytes=int(_USEFUL * opened.nbytes),
    )


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
    keys = max(relation.num_rows, 1)
    if zipf is None and sample is not None and sample.num_rows:
        frequencies = frequencies_of_sample(spec.condition.ranges(sample).low, keys)
    else:
        frequencies = KeyFrequencies.zipf(zipf or 0.0, keys)
    read = relation.reading(spec.relation_columns)
    return Workload(
        frequencies,
        relation_rows=keys,
        num_pages=relation.num_pages,
        page_bytes=read.nbytes / relation.num_pages,
        values_per_result=len(spec.payload),
        rate=rate,
        batch_rows=batch_rows,
    )


def _one_batch(sample: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
    if isinstance(sample, pa.RecordBatch):
        return sample
    batches = sample.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=sample.schema)


def _key_and_number(relation: AnyRelation) -> pa.Schema:
    fields = [relation.schema.field(name) for name in relation.key]
    name = next(name for name in ("value", "_value", "__value") if name not in relation.key)
    return pa.schema([*fields, pa.field(name, pa.int64())])
