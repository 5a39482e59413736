"""Policy: which tuple leaves the memory of a window join when there is no room."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, field
from typing import ClassVar

from semistream.errors import InvalidArgument
from semistream.windows.lengths import WindowLength
from semistream.windows.probabilities import LearntProbabilities, Probabilities
from semistream.windows.sides import SIDES


@dataclass(frozen=True)
class Policy(ABC):
    """The least worthy tuple leaves; of tuples of equal worth the one that arrived first (WINDOW 4.2).

    A tuple that arrives is a candidate like those in memory. ``code`` is what the kernels call the policy.
    """

    name: ClassVar[str]
    code: ClassVar[int]
    classes: ClassVar[int] = 1 << 20
    """Values that are told apart exactly; where there are more, values within 3 % count as equal."""

    def accept(self, windows: tuple[WindowLength, WindowLength]) -> None:  # noqa: B027  # most take any
        """Refuse windows that the policy can make nothing of."""


@dataclass(frozen=True)
class WeighingPolicy(Policy):
    """A policy that goes by how likely partners are; ``probabilities`` says where that is known from."""

    probabilities: Probabilities = field(default_factory=LearntProbabilities)


def require_bounded(policy: Policy, windows: tuple[WindowLength, WindowLength]) -> None:
    """Refuse windows without an end."""
    for side, window in zip(SIDES, windows, strict=True):
        if not window.bounded:
            raise InvalidArgument(
                f"policy {policy.name!r} goes by what is left of a tuple's life, but the {side} window is unbounded; "
                "give a window, or the policy 'prob' (WINDOW 6.2)."
            )
