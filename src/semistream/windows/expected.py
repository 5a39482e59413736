"""EXPECTED: keep the tuples that will produce most while they stay in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from semistream.kernels.window_classes import BY_EXPECTED
from semistream.windows.policy import WeighingPolicy


@dataclass(frozen=True)
class Expected(WeighingPolicy):
    """A tuple is worth what it is to PROB times the time that it can be expected to stay in memory.

    This is what WINDOW 4.2.2 names as the better idea and leaves to future work. LIFE overrates tuples that will not
    stay until they expire. So the time is bounded twice: by what is left of the tuple's life, and by how long tuples of
    its class of priority have stayed of late before they expired or were evicted (a moving mean of the last 16 or so;
    one instant at least, so that classes which are turned away at the door still rank by their probability). In a
    window without an end only the second bound holds.
    """

    name: ClassVar[str] = "expected"
    code: ClassVar[int] = BY_EXPECTED
    classes: ClassVar[int] = 4096
