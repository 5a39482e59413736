"""SlowCpu: a processor that cannot join tuples as fast as they arrive, and the queue in front of it (WINDOW 2.3)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from semistream.datasets.zipf import whole_number
from semistream.errors import InvalidArgument
from semistream.windows.kernels.heap import (
    DROP_AT_RANDOM,
    DROP_BY_PARTNERS,
    DROP_LEAST_PROBABLE,
    DROP_NEWEST,
    DROP_OLDEST,
)
from semistream.windows.policies import Policy, WeighingPolicy
from semistream.windows.streams.lengths import WindowLength

Model = Literal["modular", "integrated"]
Drop = Literal["prob", "random", "oldest", "newest"]

_DROPS = {
    "prob": DROP_LEAST_PROBABLE,
    "random": DROP_AT_RANDOM,
    "oldest": DROP_OLDEST,
    "newest": DROP_NEWEST,
}
_MOST_TERMS = 10**6


@dataclass(frozen=True)
class SlowCpu:
    """The slow CPU case: ``service`` tuples of both streams are joined at every instant, in the order of arrival.

    Tuples wait in a queue of at most ``queue`` of them between instants; those that are over it are dropped, and never
    come to the join, which joins the others as if they were the streams, with its own memory and policy. What is
    dropped from the queue and what is evicted from memory is counted apart. Time that is not used is lost, but for one
    tuple's worth: a processor that waits takes the next tuple at once.

    - ``model="modular"``: the queue has a policy of its own, ``drop``, and knows nothing of the memory. ``"prob"``
      drops the tuple whose partners are least likely (as with PROB the older one of equals), and shares the statistics
      with the join's policy: its probabilities. ``"random"``, ``"oldest"`` and ``"newest"`` share nothing.
    - ``model="integrated"``: the queue knows what is in memory. It drops the tuple that would bring least: the partners
      that are in memory now, which it would meet when it is served, and those to be expected in the rest of its life.
      The paper names this model and gives no algorithm. ``drop`` means nothing here.

    Each drop looks at all tuples in the queue. Windows must be of time: a window of tuples would hold others than those
    of the exact join when some are dropped.

    >>> SlowCpu(service=1.5, queue=100).rate
    Fraction(3, 2)
    """

    service: int | float | Fraction
    queue: int
    model: Model = "modular"
    drop: Drop = "prob"

    def __post_init__(self) -> None:
        whole_number("queue", self.queue, least=0)
        if self.model not in ("modular", "integrated"):
            raise InvalidArgument(f"model is {self.model!r}; give 'modular' or 'integrated'.")
        if self.drop not in _DROPS:
            raise InvalidArgument(f"drop is {self.drop!r}; give one of {', '.join(map(repr, _DROPS))}.")
        if isinstance(self.service, bool | str) or not 0 < self.service < _MOST_TERMS or self.rate <= 0:
            raise InvalidArgument(
                f"service is {self.service!r}; give the tuples that are joined at an instant, more than a millionth "
                f"and less than {_MOST_TERMS}."
            )

    @property
    def rate(self) -> Fraction:
        """Tuples served at an instant, as a ratio of small numbers."""
        return Fraction(self.service).limit_denominator(_MOST_TERMS)

    @property
    def code(self) -> int:
        """What the kernels call the way to drop tuples."""
        return DROP_BY_PARTNERS if self.model == "integrated" else _DROPS[self.drop]

    def accept(self, policy: Policy, windows: tuple[WindowLength, WindowLength]) -> None:
        """Refuse what a queue cannot be combined with."""
        if any(window.by_tuples for window in windows):
            raise InvalidArgument("a slow CPU drops tuples, and windows of tuples would differ; give windows of time.")
        if self.code in (DROP_LEAST_PROBABLE, DROP_BY_PARTNERS) and not isinstance(policy, WeighingPolicy):
            raise InvalidArgument(
                f"the queue drops by probability (model {self.model!r}), but policy {policy.name!r} knows none; give "
                "drop='random', or a policy with probabilities."
            )
