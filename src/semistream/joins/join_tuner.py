"""The tuner of a join: what it chooses among, and what it takes unless another is surely faster."""

from __future__ import annotations

import pyarrow as pa

from semistream.joins.candidates import AKIN, candidates, last_resorts, usual_operator
from semistream.joins.spec import JoinSpec
from semistream.relation import AnyRelation
from semistream.tuning.machine import Machine
from semistream.tuning.tuner import Tuner
from semistream.tuning.workload import Workload


def join_tuner(
    relation: AnyRelation, spec: JoinSpec, workload: Workload, machine: Machine, sample: pa.RecordBatch | None = None
) -> Tuner:
    """Chooses among all operators that take a join; ``sample`` are rows of its stream."""
    return Tuner(
        workload,
        machine,
        candidates(relation, spec, sample),
        usual=usual_operator(spec).name,
        last_resort=last_resorts(relation),
        akin=AKIN,
    )
