"""Choice of the operator to run: the named one or, for ``"auto"``, the one the tuner expects to be fastest."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from semistream.budget import parse_bytes
from semistream.costs.machine import Machine
from semistream.costs.prediction import Prediction
from semistream.costs.profiles import machine_for
from semistream.errors import BudgetError, InvalidArgument
from semistream.joins.base import SemiStreamJoin
from semistream.joins.condition.spec import JoinSpec
from semistream.joins.engine.operator import EngineJoin
from semistream.relation import AnyRelation, ParquetRelation
from semistream.tuning.candidates import OPERATORS, join_tuner, usual_operator
from semistream.tuning.explain import workload_of

_LOG = logging.getLogger(__name__)
_ROWS_SEEN = 1 << 16  # rows of the sample used: a batch may be a whole table, and a join should start at once


def operator_class(operator: str | type[SemiStreamJoin]) -> type[SemiStreamJoin]:
    """Return the operator with a name, or the given class itself."""
    if isinstance(operator, type) and issubclass(operator, SemiStreamJoin):
        return operator
    if operator not in OPERATORS:
        raise InvalidArgument(f"operator is {operator!r}; give 'auto', {', '.join(map(repr, OPERATORS))} or a class.")
    return OPERATORS[operator]


def join_bytes(
    memory: int | str | None,
    operator: str | type[SemiStreamJoin],
    relation: AnyRelation,
    spec: JoinSpec,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> int:
    """Return the memory of a join in bytes; None is the default of the operator, or of the usual one for "auto"."""
    if memory is not None:
        return parse_bytes(memory, of=relation.nbytes)
    kind = usual_operator(spec) if operator == "auto" else operator_class(operator)
    return kind.default_memory(relation, spec, options)


@dataclass(frozen=True)
class OperatorChoice:
    """The operator to run and, if a prediction decided, the machine and that prediction."""

    kind: type[SemiStreamJoin]
    machine: Machine | None = None
    prediction: Prediction | None = None

    def starting_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options that save the operator a repeated prediction; none if the user's options invalidate it.

        A cache is left to the engine: the prediction is for a stream without end, and does not count filling it.
        """
        if self.prediction is None or not issubclass(self.kind, EngineJoin) or options:
            return {}
        share = self.prediction.options.get("cache_share")
        return {"machine": self.machine} if share else {"machine": self.machine, "expected_share": share}


def choose_operator(
    operator: str | type[SemiStreamJoin],
    relation: AnyRelation,
    spec: JoinSpec,
    memory_bytes: int,
    *,
    sample: pa.RecordBatch | None = None,
    machine: Machine | None = None,
    batch_rows: float = math.inf,
) -> OperatorChoice:
    """Return the named operator or, for ``"auto"``, the one expected to be fastest in the memory.

    The usual operator is chosen unless another is clearly faster, because it adapts to a changing stream. The models
    cover equality joins on R's key. A join on a range of the key gets the sweep, any other join a scan of R. If the
    memory is too small for every operator, the usual one is returned, which then raises `BudgetError` itself.
    ``batch_rows`` is the size of a micro-batch, at whose end no tuple may wait, as on Spark.
    """
    if operator != "auto":
        return OperatorChoice(operator_class(operator))
    usual = usual_operator(spec)
    if spec.condition.access != "equality" or isinstance(relation, ParquetRelation) or not relation.num_pages:
        return OperatorChoice(usual)
    seen = None if sample is None else sample.slice(0, _ROWS_SEEN)
    known = machine or machine_for(relation.path)
    tuner = join_tuner(relation, spec, workload_of(relation, spec, seen, batch_rows=batch_rows), known, seen)
    try:
        chosen = tuner.chosen(memory_bytes)
    except BudgetError:
        return OperatorChoice(usual)
    if chosen.operator in tuner.last_resort:
        _LOG.warning(
            "%d bytes are enough only for operator %r, which first copies %s to its own store. Give more memory.",
            memory_bytes,
            chosen.operator,
            relation.path,
        )
    return OperatorChoice(OPERATORS[chosen.operator], known, chosen)
