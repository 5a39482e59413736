"""Worth: the class of priority that each tuple arrives with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.kernels.search import positions_of
from semistream.kernels.types import Int32s
from semistream.kernels.window_classes import grid_classes, grid_values
from semistream.windows.condition import Condition, RowCodes
from semistream.windows.policy import Policy, WeighingPolicy
from semistream.windows.probabilities import ComputedProbabilities, GivenProbabilities, LearntProbabilities

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class NewTuples:
    """Tuples of one stream that arrive: their rows, their codes, and what a result of each is worth (None: the same)."""

    side: int
    batch: pa.RecordBatch
    codes: RowCodes
    weight: Floats | None


class Worth(ABC):
    """Values of the classes, ascending, and the class of each tuple as it arrives (None: the kernel learns it)."""

    values: Floats

    @abstractmethod
    def classes(self, tuples: NewTuples) -> Int32s | None:
        """The classes of tuples."""

    @staticmethod
    def of(policy: Policy, condition: Condition, *, weighted: bool) -> Worth:
        """How tuples are weighed under a policy."""
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
    """All tuples are alike."""

    values = np.zeros(1)

    def classes(self, tuples: NewTuples) -> Int32s | None:
        return np.zeros(tuples.batch.num_rows, np.int32)


class _Learnt(Worth):
    """The kernel learns what tuples are worth."""

    def __init__(self) -> None:
        self.values = grid_values()

    def classes(self, tuples: NewTuples) -> Int32s | None:  # noqa: ARG002
        return None


class _Computed(Worth):
    """A function of the user says it."""

    def __init__(self, source: ComputedProbabilities) -> None:
        self._source = source
        self.values = grid_values()

    def classes(self, tuples: NewTuples) -> Int32s | None:
        return _grid(self._source.of_rows(tuples.side, tuples.batch), tuples.weight)


class _Given(Worth):
    """Tables say it: a class for each value that can come, if these are known and not more than ``most``."""

    def __init__(self, source: GivenProbabilities, condition: Condition, *, most: int) -> None:
        self._frequencies = source.bind(condition)
        distinct = np.unique(np.concatenate([[0.0], *(side.frequency for side in self._frequencies)]))
        exact = condition.codec is not None and distinct.size <= most
        self.values = distinct if exact else grid_values()
        self._class_of_code: tuple[Int32s, ...] = ()
        if exact:
            self._class_of_code = tuple(
                np.searchsorted(distinct, side.frequency).astype(np.int32) for side in self._frequencies
            )

    def classes(self, tuples: NewTuples) -> Int32s | None:
        other = self._frequencies[1 - tuples.side]
        if not self._class_of_code:
            return _grid(other.near(tuples.codes), tuples.weight)
        present, at = positions_of(tuples.codes.code, other.codes)
        classes = np.zeros(present.size, np.int32)
        classes[present] = self._class_of_code[1 - tuples.side][at[present]]
        return classes


def _grid(values: Floats, weight: Floats | None) -> Int32s:
    found = np.empty(values.size, np.int32)
    grid_classes(values if weight is None else values * weight, found)
    return found
