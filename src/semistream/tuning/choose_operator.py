"""Which operator runs: the one that was named, or for ``"auto"`` the one that the tuner expects to be fastest."""

from __future__ import annotations

import logging
import math

import pyarrow as pa

from semistream.costs.machine import Machine
from semistream.costs.profiles import machine_for
from semistream.errors import BudgetError, InvalidArgument
from semistream.joins.base import SemiStreamJoin
from semistream.joins.condition.spec import JoinSpec
from semistream.relation import AnyRelation, ParquetRelation
from semistream.tuning.candidates import OPERATORS, join_tuner, usual_operator
from semistream.tuning.explain import workload_of

_LOG = logging.getLogger(__name__)
_ROWS_SEEN = 1 << 16  # of a sample: a batch may be a whole table, and a join should start at once


def operator_class(operator: str | type[SemiStreamJoin]) -> type[SemiStreamJoin]:
    """The operator by name, or as it was given."""
    if isinstance(operator, type) and issubclass(operator, SemiStreamJoin):
        return operator
    if operator not in OPERATORS:
        raise InvalidArgument(f"operator is {operator!r}; give 'auto', {', '.join(map(repr, OPERATORS))} or a class.")
    return OPERATORS[operator]


def choose_operator(
    operator: str | type[SemiStreamJoin],
    relation: AnyRelation,
    spec: JoinSpec,
    memory_bytes: int,
    *,
    sample: pa.RecordBatch | None = None,
    machine: Machine | None = None,
    batch_rows: float = math.inf,
) -> type[SemiStreamJoin]:
    """The operator that was named, or for ``"auto"`` the one that is expected to be fastest in the memory.

    The usual one is taken unless another is clearly faster: it follows the stream as that changes. Models speak of
    tuples that ask for one key. What asks for ranges of it is swept, and what does not ask for it is scanned. A memory
    that is too small for any operator is left to the most capable one to refuse. After ``batch_rows`` tuples none may
    wait, as on Spark.
    """
    if operator != "auto":
        return operator_class(operator)
    usual = usual_operator(spec)
    if spec.condition.access != "equality" or isinstance(relation, ParquetRelation) or not relation.num_pages:
        return usual
    seen = None if sample is None else sample.slice(0, _ROWS_SEEN)
    known = machine or machine_for(relation.path)
    tuner = join_tuner(relation, spec, workload_of(relation, spec, seen, batch_rows=batch_rows), known, seen)
    try:
        chosen = tuner.chosen(memory_bytes).operator
    except BudgetError:
        return usual
    if chosen in tuner.last_resort:
        _LOG.warning(
            "%d bytes are enough for %r only, which copies %s to a store of its own first. Give more memory.",
            memory_bytes,
            chosen,
            relation.path,
        )
    return OPERATORS[chosen]
