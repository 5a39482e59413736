"""Clocks that tests move by hand, or that advance by themselves in fixed steps."""

from __future__ import annotations


class FakeClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class TickingClock(FakeClock):
    """Moves by ``tick_s`` whenever it is read."""

    def __init__(self, tick_s: float) -> None:
        super().__init__()
        self._tick_s = tick_s

    def __call__(self) -> float:
        self.now_s += self._tick_s
        return self.now_s
