"""A window join as WINDOW defines it, instant by instant, in plain Python: the oracle of the operator.

Streams are lists of (time, key) in the order of time. A tuple is named by its side (0 is left) and its position.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

MASK = 2**64 - 1


@dataclass(frozen=True)
class Window:
    """``length`` instants or tuples; None: unbounded."""

    length: int | None
    by_tuples: bool = False


@dataclass(frozen=True)
class Tuple:
    side: int
    position: int
    time: int
    key: Any
    arrival: int


@dataclass
class Naive:
    """Runs the model; ``results`` are (left position, right position), ``evicted`` (side, position) -> the arrival
    number of the last tuple that it met."""

    windows: tuple[Window, Window]
    capacity: tuple[int, int] | int | None  # of each side, of both together, or no limit
    worth: Callable[[Naive, Tuple], float] | None = None  # None: drawn at random
    seed: int = 0
    learnt: Learnt | None = None
    matches: Callable[[Any, Any], bool] = lambda left, right: left is not None and left == right
    memory: list[Tuple] = field(default_factory=list)
    results: Counter[tuple[int, int]] = field(default_factory=Counter)
    evicted: dict[tuple[int, int], int] = field(default_factory=dict)
    expired: list[tuple[int, int]] = field(default_factory=list)
    arrived: list[int] = field(default_factory=lambda: [0, 0])
    arrivals: int = 0
    now: int = 0
    price: list[float] = field(default_factory=lambda: [0.0, 0.0])
    pools: tuple[list[Tuple], list[Tuple]] = field(default_factory=lambda: ([], []))

    def run(self, left: Sequence[tuple[int, Any]], right: Sequence[tuple[int, Any]]) -> Naive:
        instants = sorted({time for time, _ in [*left, *right]})
        for now in instants:
            self.instant(now, [key for time, key in left if time == now], [key for time, key in right if time == now])
        return self

    def instant(self, now: int, left: Sequence[Any], right: Sequence[Any]) -> None:
        self.now = now
        new = []
        for side, keys in enumerate((left, right)):
            for key in keys:
                new.append(Tuple(side, self.arrived[side], now, key, self.arrivals))
                self.arrived[side] += 1
                self.arrivals += 1
        self.expire(now)
        for one in new:
            if not self.in_window(one, now) or one.key is None:
                continue
            if self.learnt is not None:
                self.learnt.observe(one)
            for other in self.memory:
                if other.side != one.side:
                    left_one, right_one = (one, other) if one.side == 0 else (other, one)
                    if self.matches(left_one.key, right_one.key):
                        self.results[left_one.position, right_one.position] += 1
            self.enter(one)
        self.expire(now + 1)
        self.fit()
        if self.learnt is not None:
            self.learnt.after(self)

    def in_window(self, one: Tuple, now: int) -> bool:
        window = self.windows[one.side]
        if window.length is None:
            return True
        if window.by_tuples:
            return self.arrived[one.side] - one.position - 1 < window.length
        return now - one.time < window.length

    def life(self, one: Tuple) -> float:
        """Return the remaining life of a tuple after this instant."""
        window = self.windows[one.side]
        if window.length is None:
            return float(2**63 - 1)
        if window.by_tuples:
            return one.position + window.length - self.arrived[one.side] + 1
        return one.time + window.length - 1 - self.now

    def expire(self, now: int) -> None:
        for one in [one for one in self.memory if not self.in_window(one, now)]:
            self.leave(one)
            self.expired.append((one.side, one.position))

    def fit(self) -> None:
        if self.capacity is None:
            return
        if isinstance(self.capacity, int):
            while len(self.memory) > self.capacity:
                self.evict(self.memory)
            return
        for side, capacity in enumerate(self.capacity):
            while len(own := [one for one in self.memory if one.side == side]) > capacity:
                self.evict(own)

    def evict(self, candidates: Sequence[Tuple]) -> None:
        if self.worth is None:
            sides = {one.side for one in candidates}
            pool = [one for side in range(2) if side in sides for one in self.pools[side]]
            one = pool[self.draw(len(pool))]
        else:
            one = min(candidates, key=lambda one: (self.worth(self, one), one.arrival))
        self.leave(one)
        self.evicted[one.side, one.position] = self.arrivals - 1
        shared = isinstance(self.capacity, int)
        kept = [prob(self, other) for other in self.memory if shared or other.side == one.side] if self.worth else []
        if kept:
            side = 0 if shared else one.side
            self.price[side] += (min(kept) - self.price[side]) / 64

    def enter(self, one: Tuple) -> None:
        self.memory.append(one)
        self.pools[one.side].append(one)

    def leave(self, one: Tuple) -> None:
        self.memory.remove(one)
        pool = self.pools[one.side]
        at = pool.index(one)
        pool[at] = pool[-1]
        pool.pop()

    def draw(self, below: int) -> int:
        self.seed = (self.seed + 0x9E3779B97F4A7C15) & MASK
        z = self.seed
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return ((z ^ (z >> 31)) >> 1) % below


@dataclass
class Learnt:
    """Exact counts of keys that decay, and the worth of every tuple in memory at its last look-up."""

    half_life: int
    refresh: int
    decay_at: int = 0
    refresh_at: int = 0
    counts: tuple[dict[Any, float], dict[Any, float]] = field(
        default_factory=lambda: (defaultdict(float), defaultdict(float))
    )
    known: dict[tuple[int, int], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.decay_at, self.refresh_at = self.half_life, self.refresh

    def observe(self, one: Tuple) -> None:
        self.counts[one.side][one.key] += 1
        self.known[one.side, one.position] = self.counts[1 - one.side][one.key]

    def after(self, model: Naive) -> None:
        if model.arrivals >= self.decay_at:
            for counts in self.counts:
                for key in counts:
                    counts[key] *= 0.5
            self.decay_at = model.arrivals + self.half_life
        if model.arrivals >= self.refresh_at:
            for one in model.memory:
                self.known[one.side, one.position] = self.counts[1 - one.side][one.key]
            self.refresh_at = model.arrivals + self.refresh


def prob(model: Naive, one: Tuple) -> float:
    """WINDOW 4.2.1, by the frequencies of the whole streams, or those learnt."""
    if model.learnt is not None:
        return grid(model.learnt.known[one.side, one.position])
    return FREQUENCIES[1 - one.side].get(one.key, 0.0)


def life(model: Naive, one: Tuple) -> float:
    """WINDOW 4.2.2."""
    return prob(model, one) * model.life(one)


def expected(model: Naive, one: Tuple) -> float:
    """Return the gain of a tuple over the price of its place, within an eighth of the longer window."""
    lengths = [window.length for window in model.windows]
    horizon = max(1.0, max(-1 if length is None else length for length in lengths) / 8)
    gain = prob(model, one) - model.price[0 if isinstance(model.capacity, int) else one.side]
    return gain * min(model.life(one), horizon) if gain > 0 else gain * 1e-9


FREQUENCIES: list[dict[Any, float]] = [{}, {}]


def whole_stream_frequencies(left: Sequence[tuple[int, Any]], right: Sequence[tuple[int, Any]]) -> None:
    """Let `prob` go by these streams."""
    longest = max(len(left), len(right), 1)
    for side, stream in enumerate((left, right)):
        counts = Counter(key for _, key in stream if key is not None)
        FREQUENCIES[side] = {key: count / longest for key, count in counts.items()}


def grid(value: float) -> float:
    """The least value of the class of a value: steps of a 32nd of an octave."""
    if value <= 0:
        return 0.0
    octave = 1.0
    while octave > value:
        octave /= 2
    while octave * 2 <= value:
        octave *= 2
    return octave * (1 + int((value / octave - 1) * 32) / 32)
