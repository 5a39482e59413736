"""A join as the cost models see it."""

from __future__ import annotations

import math

from semistream.joins.spec import JoinSpec
from semistream.relation import AnyRelation
from semistream.tuning.frequencies import KeyFrequencies
from semistream.tuning.workload import Workload


def join_workload(
    read: AnyRelation,
    spec: JoinSpec,
    frequencies: KeyFrequencies,
    *,
    results_per_tuple: float = 1.0,
    rate: float | None = None,
    batch_rows: float = math.inf,
) -> Workload:
    """The workload of a join on equality with R's key; ``read`` is R with the columns that it reads."""
    return Workload(
        frequencies,
        relation_rows=max(read.num_rows, 1),
        num_pages=read.num_pages,
        page_bytes=read.nbytes / read.num_pages,
        results_per_tuple=results_per_tuple,
        values_per_result=len(spec.payload),
        rate=rate,
        batch_rows=batch_rows,
    )
