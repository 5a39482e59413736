"""JoinPlan: all that a Python worker needs to run a join, checked on the driver and sent with every task."""

from __future__ import annotations

import pickle
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from semistream.budget import parse_bytes
from semistream.costs.profiles import machine_for
from semistream.errors import BudgetError, InvalidArgument, RelationError
from semistream.joins.base import JoinArguments, SemiStreamJoin
from semistream.joins.condition.condition import Access, JoinOn, key_pairs
from semistream.joins.condition.spec import JoinSpec, JoinTerms
from semistream.joins.condition.where import Where, where_parts
from semistream.joins.engine.operator import EngineJoin
from semistream.joins.lookup.resident import ResidentJoin
from semistream.pipelines.carried_types import carried_schema
from semistream.relation import Relation
from semistream.tuning.candidates import usual_operator
from semistream.tuning.choose_operator import choose_operator

MICRO_BATCH_ROWS = 1_000_000
"""Rows of a micro-batch, unless something else is known."""
_BATCH_ROWS = 500_000  # of a task: a batch is drained before the next one


@dataclass(frozen=True)
class JoinPlan:
    """A join of a stream with the relation at ``path``. Equal plans share an engine in a worker.

    ``arguments`` are the operator's, in a form that can be compared; ``key`` and ``key_types`` are R's. ``access`` is
    the condition's, and ``stream_keys`` are the stream's columns that it equates by code, with R's key if that is
    ``"equality"``. ``schema`` are the operator's result columns, ``spark_schema`` the same in types that Spark has.
    If it ``holds_small``, versions of R, or parts of them, that fit the memory are held there as a whole, whatever the
    operator is for others: R may grow. ``cuts`` are the key codes at which R is divided into parts; if there are none,
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
        memory: int | str,
        operator: str | type[SemiStreamJoin],
        columns: Sequence[str] | None,
        suffix: str,
        options: Mapping[str, Any],
        disk: str = "auto",
        holds_small: bool | None = None,
    ) -> JoinPlan:
        """Check a join as a user writes it, as every worker's operator will; none is made for it here.

        It ``holds_small`` versions of R if that is said, or if the choice is left to us and no options are given.
        """
        spec = JoinSpec.of(relation, stream_schema, on=on, where=where, how=how, columns=columns, suffix=suffix)
        machine = machine_for(relation.path)  # the driver's: workers are taken to be like it
        memory_bytes = parse_bytes(memory, of=relation.nbytes)
        kind = choose_operator(operator, relation, spec, memory_bytes, machine=machine, batch_rows=_BATCH_ROWS).kind
        if operator == "auto" and kind is ResidentJoin:
            kind = usual_operator(spec)  # for versions that have outgrown the memory
        _require_sendable({**options, "disk": disk})
        kind.check(relation, spec, memory_bytes, {**options, "disk": disk})
        arguments: dict[str, Hashable] = {
            "on": None if on is None else tuple(key_pairs(on).items()),
            "where": tuple(part if isinstance(part, str) else _Sent.of(part) for part in where_parts(where)),
            "how": how,
            "memory": memory_bytes,
            "columns": None if columns is None else tuple(columns),
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
        """The budget of the operator."""
        memory = dict(self.arguments)["memory"]
        assert isinstance(memory, int)
        return memory

    def open_operator(self, relation: Relation) -> SemiStreamJoin:
        """The operator over a version of R, or a part of it, that gives the columns the plan promises."""
        spec, arguments = self.spec(relation), self._operator_arguments
        if spec.schema != self.schema:
            raise self._changed(relation)
        kind = self._kind(relation, spec)
        if kind is not self.operator:
            arguments = {name: value for name, value in arguments.items() if name in JoinArguments.__annotations__}
        return kind(relation, spec, **arguments)

    def operator_for(self, relation: Relation) -> type[SemiStreamJoin]:
        """The operator that joins a version of R."""
        return self._kind(relation, self.spec(relation))

    def _kind(self, relation: Relation, spec: JoinSpec) -> type[SemiStreamJoin]:
        """All of R is held in memory if the plan says so and it fits."""
        if not self.holds_small or self.access == "scan":
            return self.operator
        try:
            ResidentJoin.check(relation, spec, self.memory_bytes, {"disk": dict(self.arguments)["disk"]})
        except BudgetError:
            return self.operator
        return ResidentJoin

    def spec(self, relation: Relation) -> JoinSpec:
        """The join resolved against a version of R."""
        terms: dict[str, Any] = {name: value for name, value in self.arguments if name in JoinTerms.__annotations__}
        terms["on"] = None if terms["on"] is None else dict(terms["on"])
        terms["where"] = [part if isinstance(part, str) else part.expression for part in terms["where"]]
        return JoinSpec.of(relation, self.stream_schema, **terms)

    @property
    def _operator_arguments(self) -> dict[str, Any]:
        return {name: value for name, value in self.arguments if name not in JoinTerms.__annotations__}

    def require_same_key(self, relation: Relation) -> None:
        """Refuse a version of R whose key is not the one that the stream was planned and routed for."""
        if (relation.key, relation.codec.types) != (self.key, self.key_types):
            raise self._changed(relation)

    def _changed(self, relation: Relation) -> RelationError:
        return RelationError(
            f"version {relation.version} of {self.path} has other columns or types than when join() was called: "
            f"({', '.join(f'{field.name}: {field.type}' for field in relation.schema)}), keyed by "
            f"({', '.join(relation.key)}). Stop the query and call join() again."
        )


@dataclass(frozen=True)
class _Sent:
    """An expression in the form in which it is sent: expressions themselves have neither a hash nor a comparison."""

    content: bytes

    @classmethod
    def of(cls, expression: pc.Expression) -> _Sent:
        return cls(pickle.dumps(expression))

    @property
    def expression(self) -> pc.Expression:
        return pickle.loads(self.content)


def _require_sendable(options: Mapping[str, Any]) -> None:
    """Refuse values that cannot travel to a worker."""
    for name, value in options.items():
        if not isinstance(value, str | int | float | bool | None):
            raise InvalidArgument(
                f"option {name!r} is a {type(value).__name__}; on Spark give a string, a number or a boolean, "
                "since it is sent to the workers."
            )
