"""Requirements: what an operator can be asked for, checked without creating one."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.costs.work import OperatorModel
from semistream.errors import BudgetError, InvalidArgument
from semistream.joins.condition.spec import JoinSpec, JoinTerms
from semistream.joins.join_facts import JoinFacts
from semistream.joins.parts.deadlines import DEADLINE_COLUMN, Clock, DeadlineRule
from semistream.joins.parts.options import Check, anything, require_options
from semistream.joins.parts.ordered_output import NUMBER_COLUMN
from semistream.joins.resources import SetAside
from semistream.relation import AnyRelation, Disk, Relation

_DEFAULT_SHARE = 10  # R's bytes to one of memory
_LEAST_DEFAULT = 1_000_000  # room for wide rows of the stream, even if R is small


class JoinArguments(JoinTerms, total=False):
    """Arguments common to all operators, besides the relation and the stream; see `SemiStreamJoin`."""

    memory: int | str | MemoryBudget | None
    disk: str | Disk
    ordered: bool
    deadline_s: float | str | None
    clock: Clock


class Requirements(ABC):
    """The class side of an operator: its name, its options, the joins it takes, and its model.

    An operator that ``needs_index`` finds rows by R's key and refuses conditions that do not restrict it; one that
    ``needs_equality`` refuses ranges too. Only one that ``takes_unclustered`` scans plain Parquet. ``options`` names
    the operator's own options, with a check for each.
    """

    name: ClassVar[str]
    needs_index: ClassVar[bool] = False
    needs_equality: ClassVar[bool] = False
    takes_unclustered: bool = False
    options: ClassVar[Mapping[str, Check]] = {}

    @classmethod
    def require_condition(cls, relation: AnyRelation, spec: JoinSpec) -> None:
        if cls.needs_equality:
            spec.condition.require_equality(cls.name, relation)
        if cls.needs_index:
            spec.condition.require_index(cls.name, relation)

    @classmethod
    def check(cls, relation: Relation, spec: JoinSpec, memory_bytes: int, options: Mapping[str, Any]) -> None:
        """Raise the error that creating the operator would raise, without creating it.

        Checks the options, the condition and the memory. ``options`` has all arguments except the terms of the join.
        """
        cls.require_options(options)
        relation.disk(options.get("disk", "auto")).close()
        cls.require_fit(relation, spec, memory_bytes, options)

    @classmethod
    def require_fit(cls, relation: AnyRelation, spec: JoinSpec, memory_bytes: int, options: Mapping[str, Any]) -> None:
        """Raise the error that creating the operator would raise over its condition or its memory."""
        ordered, deadline_s = options.get("ordered", False), options.get("deadline_s")
        rule = DeadlineRule.of(deadline_s, spec.stream_schema, options.get("clock", time.monotonic))
        carried = carried_schema(spec.stream_schema, ordered=ordered, deadlines=rule is not None)
        cls.require_condition(relation, spec)
        resolved, read = spec.with_stream(relation, carried), relation.reading(spec.relation_columns)
        shares = SetAside(ordered=ordered, deadlines=rule is not None, converts=spec.converts)
        try:
            cls.require_memory(
                JoinFacts(read, resolved.laid_out(read.layout)), max(shares.operator_bytes(memory_bytes), 1)
            )
        except BudgetError as error:
            raise shares.of_whole(error, memory_bytes) from None

    @classmethod
    def default_memory(cls, relation: AnyRelation, spec: JoinSpec, options: Mapping[str, Any]) -> int:
        """Return the bytes to use if the user gives none: `usual_bytes`, or what the operator needs if that is more."""
        nbytes = usual_bytes(relation)
        while relation.clustered or cls.takes_unclustered:  # else, creating the operator refuses the relation
            try:
                cls.require_fit(relation, spec, nbytes, options)
            except BudgetError as error:
                if (error.least_bytes or 0) <= nbytes:
                    return nbytes  # creating the operator will say what is missing
                nbytes = error.least_bytes or nbytes
            else:
                break
        return nbytes

    @classmethod
    def require_memory(cls, facts: JoinFacts, nbytes: int) -> None:
        """Raise `BudgetError` if a budget is too small. An R without pages has no model, but the same least memory."""
        try:
            cls.model(facts, MemoryBudget(nbytes))
        except (InvalidArgument, ZeroDivisionError):
            if facts.relation.num_pages:
                raise

    @classmethod
    def require_options(cls, options: Mapping[str, Any]) -> None:
        """Raise `InvalidArgument` for an unknown option, listing the known ones, or for a bad value of its own."""
        common = dict.fromkeys(JoinArguments.__annotations__, anything)
        require_options(cls.name, {**cls.options, **common}, options)

    @classmethod
    @abstractmethod
    def model(cls, facts: JoinFacts, memory: MemoryBudget) -> OperatorModel:
        """Return the cost model of this operator in ``memory``, computed from numbers alone (`semistream.tuning`).

        Charges ``memory`` as the operator would, and raises `BudgetError` if it is too small.
        """


def usual_bytes(relation: AnyRelation) -> int:
    """Return the default memory where that is enough: a tenth of R, but at least 1 MB."""
    return max(relation.nbytes // _DEFAULT_SHARE, _LEAST_DEFAULT)


def carried_schema(stream_schema: pa.Schema, *, ordered: bool, deadlines: bool) -> pa.Schema:
    """Return the columns the operator sees: the stream's, then our own number and deadline, kept out of results."""
    own = [(NUMBER_COLUMN, pa.int64(), ordered), (DEADLINE_COLUMN, pa.float64(), deadlines)]
    for name, type_, used in own:
        if used:
            if name in stream_schema.names:
                raise InvalidArgument(f"the column name {name!r} is reserved for semistream; rename the column.")
            stream_schema = stream_schema.append(pa.field(name, type_, nullable=False))
    return stream_schema
