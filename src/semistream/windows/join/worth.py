"""Worth: assigns a priority class to each arriving tuple."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from semistream.kernels.array_types import Floats, Int32s, Int64s
from semistream.windows.kernels.key_classes import find_classes, index_codes
from semistream.windows.kernels.priorities import grid_classes, grid_values
from semistream.windows.policies import Policy, WeighingPolicy
from semistream.windows.probabilities import ComputedProbabilities, GivenProbabilities, LearntProbabilities
from semistream.windows.streams.window_match import RowCodes, WindowMatch


@dataclass(frozen=True)
class NewTuples:
    """Arriving tuples of one stream: their rows, their codes, and the weight of a result of each (None: all equal)."""

    side: int
    batch: pa.RecordBatch
    codes: RowCodes
    weight: Floats | None


class Worth(ABC):
    """Classifier of arriving tuples; ``values`` are the values of the classes, ascending."""

    values: Floats

    @abstractmethod
    def classes(self, tuples: NewTuples) -> Int32s | None:
        """Return the class of each tuple, or None if the kernel learns it."""

    @staticmethod
    def of(policy: Policy, condition: WindowMatch, *, weighted: bool) -> Worth:
        """Return the classifier for a policy."""
        if not isinstance(policy, WeighingPolicy):
            return _Alike()
        source = policy.probabilities
        if isinstance(source, GivenProbabilities):
            return _Given(source, condition, most=0 if weighted else policy.classes)
        if isinstance(source, ComputedProbabilities):
            return _Computed(source)
        assert isinstance(source, LearntProbabilities)
        return _Learnt()


class _Alike(Worth):
    """One class for all tuples."""

    values = np.zeros(1)

    def classes(self, tuples: NewTuples) -> Int32s | None:
        return np.zeros(tuples.batch.num_rows, np.int32)


class _Learnt(Worth):
    """Classes learnt by the kernel."""

    def __init__(self) -> None:
        self.values = grid_values()

    def classes(self, tuples: NewTuples) -> Int32s | None:  # noqa: ARG002
        return None


class _Computed(Worth):
    """Classes of values from a user function."""

    def __init__(self, source: ComputedProbabilities) -> None:
        self._source = source
        self.values = grid_values()

    def classes(self, tuples: NewTuples) -> Int32s | None:
        return _grid(self._source.of_rows(tuples.side, tuples.batch), tuples.weight)


class _Given(Worth):
    """Classes of values from tables: one class per distinct value if these are known and at most ``most``."""

    def __init__(self, source: GivenProbabilities, condition: WindowMatch, *, most: int) -> None:
        both = self._frequencies = source.bind(condition)
        distinct = np.unique(np.concatenate([[0.0], *(side.frequency for side in both)]))
        exact = condition.codec is not None and distinct.size <= most
        self.values = distinct if exact else grid_values()
        self._tables = (
            tuple(_ClassTable(side.codes, np.searchsorted(distinct, side.frequency)) for side in both) if exact else ()
        )

    def classes(self, tuples: NewTuples) -> Int32s | None:
        if self._tables:
            return self._tables[1 - tuples.side].classes(tuples.codes.code)
        return _grid(self._frequencies[1 - tuples.side].near(tuples.codes), tuples.weight)


class _ClassTable:
    """Classes of keys by their codes; 0 for unknown keys."""

    def __init__(self, codes: Int64s, classes: Int64s) -> None:
        self._codes = np.ascontiguousarray(codes)
        self._classes = classes.astype(np.int32)
        self._slots = np.full(1 << (2 * codes.size).bit_length(), -1, np.int32)
        index_codes(self._codes, self._slots)

    def classes(self, codes: Int64s) -> Int32s:
        found = np.empty(codes.size, np.int32)
        find_classes(codes, self._codes, self._slots, self._classes, found)
        return found


def _grid(values: Floats, weight: Floats | None) -> Int32s:
    found = np.empty(values.size, np.int32)
    grid_classes(values if weight is None else values * weight, found)
    return found
