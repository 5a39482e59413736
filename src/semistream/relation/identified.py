"""Identified: relations are equal if they read the same."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Identified(ABC):
    """Base of what compares and hashes by its ``identity``, a tuple of plain values, within one class."""

    @property
    @abstractmethod
    def identity(self) -> tuple[object, ...]:
        """The values by which two objects of a class compare."""

    def __eq__(self, other: object) -> bool:
        return self.identity == other.identity if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), self.identity))
