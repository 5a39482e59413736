"""JoinPlan: everything a Python worker needs to run a join, checked on the driver and sent with every task."""

from __future__ import annotations

import pickle
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from semistream.costs.profiles import machine_for
from semistream.errors import BudgetError, InvalidArgument, RelationError
from semistream.joins.base import SemiStreamJoin
from semistream.joins.condition.condition import Access, JoinOn, key_pairs
from semistream.joins.condition.spec import Columns, JoinSpec, JoinTerms
from semistream.joins.condition.where import Where, where_parts
from semistream.joins.engine.operator import EngineJoin
from semistream.joins.lookup.resident import ResidentJoin
from semistream.joins.requirements import JoinArguments
from semistream.pipelines.carried_types import carried_schema
from semistream.relation import Relation
from semistream.tuning.candidates import usual_operator
from semistream.tuning.choose_operator import choose_operator, join_bytes

MICRO_BATCH_ROWS = 1_000_000
"""Default number of rows of a micro-batch."""
_BATCH_ROWS = 500_000  # rows of a task, assumed for the choice of operator; each batch is drained before the next


@dataclass(frozen=True)
class JoinPlan:
    """Plan of a join of a stream with the relation at ``path``. Equal plans share an operator in a worker.

    ``arguments`` are the operator's arguments in a hashable form; ``key`` and ``key_types`` are R's. ``access`` is the
    condition's access to R. ``stream_keys`` are the stream's columns that it equates by code, with R's key if
    ``access`` is ``"equality"``. ``schema`` has the operator's result columns, ``spark_schema`` the same in types that
    Spark has. With ``holds_small``, a version of R, or a part of it, that fits the memory is held there as a whole;
    ``operator`` serves the others, since R may grow. ``cuts`` are the key codes that divide R into parts; without any,
    every worker joins with all of R.
    """

    path: str
    stream_schema: pa.Schema
    operator: type[SemiStreamJoin]
    arguments: tuple[tuple[str, Hashable], ...]
    key: tuple[str, ...]
    key_types: tuple[pa.DataType, ...]
    access: Access
    stream_keys: tuple[str, ...]
    schema: pa.Schema
    spark_schema: pa.Schema
    holds_small: bool = False
    cuts: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        relation: Relation,
        stream_schema: pa.Schema,
        *,
        on: JoinOn | None,
        where: Where | None = None,
        how: str,
        memory: int | str | None,
        operator: str | type[SemiStreamJoin],
        columns: Columns | None,
        suffix: str,
        options: Mapping[str, Any],
        disk: str = "auto",
        holds_small: bool | None = None,
    ) -> JoinPlan:
        """Check the arguments of a join as every worker's operator will, without opening an operator, and plan it.

        ``holds_small`` is by default True if the operator is ``"auto"`` and there are no options.
        """
        spec = JoinSpec.of(relation, stream_schema, on=on, where=where, how=how, columns=columns, suffix=suffix)
        machine = machine_for(relation.path)  # the driver's: workers are assumed to be like it
        memory_bytes = join_bytes(memory, operator, relation, spec, options)
        kind = choose_operator(operator, relation, spec, memory_bytes, machine=machine, batch_rows=_BATCH_ROWS).kind
        if operator == "auto" and kind is ResidentJoin:
            kind = usual_operator(spec)  # for later versions of R that outgrow the memory
        _require_sendable({**options, "disk": disk})
        kind.check(relation, spec, memory_bytes, {**options, "disk": disk})
        arguments: dict[str, Hashable] = {
            "on": None if on is None else tuple(key_pairs(on).items()),
            "where": tuple(part if isinstance(part, str) else _Sent.of(part) for part in where_parts(where)),
            "how": spec.how,
            "memory": memory_bytes,
            "columns": _hashable(columns),
            "suffix": suffix,
            "disk": disk,
            **({"machine": machine} if issubclass(kind, EngineJoin) else {}),
            **options,
        }
        return cls(
            path=str(relation.path.absolute()),
            stream_schema=stream_schema,
            operator=kind,
            arguments=tuple(sorted(arguments.items())),
            key=relation.key,
            key_types=relation.codec.types,
            access=spec.condition.access,
            stream_keys=spec.condition.stream_keys,
            schema=spec.schema,
            spark_schema=carried_schema(spec.schema),
            holds_small=(operator == "auto" and not options) if holds_small is None else holds_small,
        )

    @property
    def memory_bytes(self) -> int:
        """Memory of the operator, in bytes."""
        memory = dict(self.arguments)["memory"]
        assert isinstance(memory, int)
        return memory

    def open_operator(self, relation: Relation) -> SemiStreamJoin:
        """Open the operator over a version of R, or a part of it; raise `RelationError` if the result columns differ.

        The operator is `ResidentJoin` or the plan's own.
        """
        spec, arguments = self.spec(relation), self._operator_arguments
        if spec.schema != self.schema:
            raise self._changed(relation)
        kind = self._kind(relation, spec)
        if kind is not self.operator:
            arguments = {name: value for name, value in arguments.items() if name in JoinArguments.__annotations__}
        return kind(relation, spec, **arguments)

    def operator_for(self, relation: Relation) -> type[SemiStreamJoin]:
        """Return the class of the operator that joins a version of R."""
        return self._kind(relation, self.spec(relation))

    def _kind(self, relation: Relation, spec: JoinSpec) -> type[SemiStreamJoin]:
        """Return `ResidentJoin` if the plan holds small versions and R fits the memory, else the plan's operator."""
        if not self.holds_small or self.access == "scan":
            return self.operator
        try:
            ResidentJoin.check(relation, spec, self.memory_bytes, {"disk": dict(self.arguments)["disk"]})
        except BudgetError:
            return self.operator
        return ResidentJoin

    def spec(self, relation: Relation) -> JoinSpec:
        """Resolve the join against a version of R."""
        return JoinSpec.of(relation, self.stream_schema, **self.terms)

    @property
    def terms(self) -> JoinTerms:
        """The terms of the join as the user wrote them."""
        terms: dict[str, Any] = {name: value for name, value in self.arguments if name in JoinTerms.__annotations__}
        terms["on"] = None if terms["on"] is None else dict(terms["on"])
        terms["where"] = [part if isinstance(part, str) else part.expression for part in terms["where"]]
        if isinstance(terms["columns"], _Renamed):
            terms["columns"] = dict(terms["columns"].names)
        return cast(JoinTerms, terms)

    @property
    def _operator_arguments(self) -> dict[str, Any]:
        return {name: value for name, value in self.arguments if name not in JoinTerms.__annotations__}

    def require_same_key(self, relation: Relation) -> None:
        """Raise `RelationError` if the key of R differs from the one that the join was planned and routed for."""
        if (relation.key, relation.codec.types) != (self.key, self.key_types):
            raise self._changed(relation)

    def _changed(self, relation: Relation) -> RelationError:
        return RelationError(
            f"version {relation.version} of {self.path} has other columns or types than when join() was called: "
            f"({', '.join(f'{field.name}: {field.type}' for field in relation.schema)}), keyed by "
            f"({', '.join(relation.key)}). Stop the query and call join() again."
        )


@dataclass(frozen=True)
class _Renamed:
    """Columns of R with their names in the result: a mapping that can be hashed."""

    names: tuple[tuple[str, str], ...]


def _hashable(columns: Columns | None) -> _Renamed | tuple[str, ...] | None:
    if isinstance(columns, Mapping):
        return _Renamed(tuple(columns.items()))
    return None if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)


@dataclass(frozen=True)
class _Sent:
    """A pickled Arrow expression. Expressions themselves can neither be hashed nor compared.

    It is only part of a plan that Spark pickles and sends from the driver to a worker, and is trusted as that is.
    """

    content: bytes

    @classmethod
    def of(cls, expression: pc.Expression) -> _Sent:
        return cls(pickle.dumps(expression))

    @property
    def expression(self) -> pc.Expression:
        return pickle.loads(self.content)


def _require_sendable(options: Mapping[str, Any]) -> None:
    """Raise `InvalidArgument` for an option that cannot be sent to a worker."""
    for name, value in options.items():
        if not isinstance(value, str | int | float | bool | None):
            raise InvalidArgument(
                f"option {name!r} is a {type(value).__name__}; on Spark give a string, a number or a boolean, "
                "because it is sent to the workers."
            )
