"""LIFE: keep the tuples that would produce most if they stayed until they expire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from semistream.kernels.window_classes import BY_LIFE
from semistream.windows.lengths import WindowLength
from semistream.windows.policy import WeighingPolicy, require_bounded


@dataclass(frozen=True)
class Life(WeighingPolicy):
    """A tuple is worth what it is to PROB times what is left of its life.

    The paper's LIFE heuristic (WINDOW 4.2.2): t * p_S(r). The paper does not say whether the instant at hand counts; it
    does not here, as the tuple has met its partners of that instant, so that worth is what keeping it may still bring.
    In a window of tuples what is left is counted in tuples of its own stream. Each eviction looks at all classes of
    priority that are there, up to 4097.
    """

    name: ClassVar[str] = "life"
    code: ClassVar[int] = BY_LIFE
    classes: ClassVar[int] = 4096

    def accept(self, windows: tuple[WindowLength, WindowLength]) -> None:
        """Refuse unbounded windows, in which no life has an end."""
        require_bounded(self, windows)
