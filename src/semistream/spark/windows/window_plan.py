"""WindowPlan: settings of a window join on Spark, checked on the driver and sent to the workers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import pyarrow as pa

from semistream.budget import parse_bytes
from semistream.datasets.zipf import whole_number
from semistream.errors import BudgetError, InvalidArgument
from semistream.pipelines.carried_types import carried_schema
from semistream.windows import Archive, Policy, Tuples, WindowJoin
from semistream.windows.join.capacity import Allocation, Memory
from semistream.windows.streams.event_time import EventTime
from semistream.windows.streams.lengths import WindowLength, Windows
from semistream.windows.streams.window_match import WindowMatch

FORMAT = 1
_MOST_PARTITIONS = 100_000


@dataclass(frozen=True, eq=False)
class WindowPlan:
    """Settings of the join of each key partition.

    ``memory`` is the memory of one partition; ``groups`` are the numbers that Spark groups the partitions by. Only
    the workers of the query know ``secret``, by which they authenticate to each other.
    """

    left: pa.Schema
    right: pa.Schema
    on: dict[str, str]
    times: dict[str, str]
    window: Windows
    memory: Memory
    policy: str | Policy
    allocation: Allocation
    suffix: str
    groups: tuple[int, ...]
    max_waiting: int
    archive: str | None
    late: str | None
    secret: bytes

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # without cached properties

    @property
    def schemas(self) -> tuple[pa.Schema, pa.Schema]:
        """Schemas of the left and the right stream."""
        return self.left, self.right

    @property
    def partitions(self) -> int:
        """Number of key partitions."""
        return len(self.groups)

    @cached_property
    def condition(self) -> WindowMatch:
        """Condition under which two rows match."""
        return WindowMatch.of(self.left, self.right, on=self.on, band=None, where=None, suffix=self.suffix)

    @cached_property
    def windows(self) -> tuple[WindowLength, WindowLength]:
        """Lifetimes of left and right rows, in microseconds."""
        return WindowLength.pair(self.window, EventTime.of(self.left, self.right, self.times))

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of the results, in types that Spark has."""
        return carried_schema(self.condition.schema)

    def open_join(self, archive: Archive | None = None) -> WindowJoin:
        """Return the empty operator of one key partition. Rows are late only by the watermark."""
        return WindowJoin(
            self.left,
            self.right,
            on=self.on,
            time=self.times,
            window=self.window,
            memory=self.memory,
            policy=self.policy,
            allocation=self.allocation,
            lateness=None,
            archive=archive,
            suffix=self.suffix,
            max_waiting=2**62,  # the task checks the limit (`require_progress`)
        )

    def validated(self, memory: Memory) -> WindowPlan:
        """Return this plan after a check that its operator can be built; ``memory`` is that of all partitions."""
        for side, length in zip(("left", "right"), _each(self.window), strict=True):
            if length is None or isinstance(length, Tuples):
                raise InvalidArgument(
                    f"the {side} window is {length!r}; on Spark windows are durations such as '10 minutes': the rows "
                    "of a stream are divided among key partitions, none of which can count the whole stream."
                )
        try:
            self.open_join()
        except BudgetError as error:
            raise BudgetError(
                f"memory is {memory!r} for {self.partitions} key partitions, which is {self.memory!r} for each: "
                f"{error} Raise memory, or give fewer partitions.",
                least_bytes=error.least_bytes,
            ) from error
        return self

    @cached_property
    def description(self) -> dict[str, str]:
        """Settings that must not change when a query resumes from its checkpoint."""
        return {
            "format": str(FORMAT),
            "left": _columns(self.left),
            "right": _columns(self.right),
            "on": json.dumps(self.on),
            "time": json.dumps(self.times),
            "window": json.dumps([window.length for window in self.windows]),
            "memory": repr(self.memory),
            "policy": self.policy if isinstance(self.policy, str) else self.policy.name,
            "allocation": self.allocation,
            "suffix": self.suffix,
            "partitions": str(self.partitions),
        }

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the description."""
        return hashlib.sha256(json.dumps(self.description).encode()).hexdigest()[:16]

    def require_same(self, stored: str) -> None:
        """Raise `InvalidArgument` if the state is of another plan; ``stored`` is that plan's description as JSON."""
        before: dict[str, str] = json.loads(stored)
        if before == self.description:
            return
        changed = [name for name in self.description if before.get(name) != self.description[name]]
        told = "; ".join(f"{name} was {before.get(name)}, is {self.description[name]}" for name in changed)
        raise InvalidArgument(
            f"the checkpoint belongs to another window join: {told} (memory is per partition, windows are in "
            "microseconds). Call window_join() as before, or start the query with a new checkpoint."
        )

    def require_progress(self, left_waiting: int, right_waiting: int) -> None:
        """Raise `InvalidArgument` if too many rows wait for the watermark."""
        waiting = left_waiting + right_waiting
        if waiting > self.max_waiting:
            silent = "left" if left_waiting < right_waiting else "right"
            raise InvalidArgument(
                f"{waiting} rows of a key partition wait for the watermark (left {left_waiting}, right "
                f"{right_waiting}), more than max_waiting, {self.max_waiting}: the {silent} stream is silent or far "
                "behind, and Spark's watermark follows the slower stream. Send rows to it, set "
                "spark.sql.streaming.multipleWatermarkPolicy to max, or raise max_waiting."
            )


def share_of(memory: Memory, partitions: int) -> Memory:
    """Return the share of one partition of a memory for all of them.

    >>> share_of("64MB", 4), share_of(1000, 4), share_of({"left": 10, "right": 30}, 4), share_of(None, 4)
    ('16000000B', 250, {'left': 2, 'right': 7}, None)
    """
    if memory is None:
        return None
    if isinstance(memory, str):
        return f"{parse_bytes(memory) // partitions}B"
    if isinstance(memory, Mapping):
        return {side: _whole(tuples) // partitions for side, tuples in memory.items()}
    return _whole(memory) // partitions


def partition_count(partitions: int) -> int:
    """Return the number of partitions; raise `InvalidArgument` if it is out of range."""
    return whole_number("partitions", partitions, least=1, most=_MOST_PARTITIONS)


def _whole(memory: object) -> int:
    if isinstance(memory, bool) or not isinstance(memory, int) or memory < 1:
        raise BudgetError(f"memory is {memory!r}; give tuples, a size in bytes such as '64MB', or None (no limit).")
    return memory


def _each(window: Windows) -> tuple[object, object]:
    return (window.get("left"), window.get("right")) if isinstance(window, Mapping) else (window, window)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
