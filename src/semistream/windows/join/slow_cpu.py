"""SlowCpu: a processor too slow to join all arriving tuples, and the queue in front of it (WINDOW 2.3)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from semistream.datasets.zipf import whole_number
from semistream.errors import InvalidArgument
from semistream.windows.kernels.waiting_queue import (
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
    """The slow CPU case: a fixed number of tuples of both streams is joined per instant, in order of arrival.

    The excess in the queue is dropped and never reaches the join, which treats the other tuples as its streams, with
    its own memory and policy. Statistics count drops from the queue and evictions from memory separately. Unused time
    is lost, except for one tuple's worth: an idle processor takes the next tuple at once.

    Each drop examines all tuples in the queue. Windows must be of time: if tuples are dropped, a window of tuples
    would hold other tuples than in the exact join.

    Parameters
    ----------
    service : int, float or Fraction
        Tuples joined per instant, of both streams together; more than a millionth and less than a million.
    queue : int
        Most tuples that wait between instants.
    model : {"modular", "integrated"}
        ``"modular"``: the queue has its own policy, ``drop``, and knows nothing of the memory. ``"integrated"``: the
        queue knows the memory. It drops the tuple that would bring least: its partners now in memory, which it would
        meet when served, plus its expected partners in the rest of its life. The paper names this model but gives no
        algorithm.
    drop : {"prob", "random", "oldest", "newest"}
        Policy of a modular queue; ignored if integrated. ``"prob"`` drops the tuple with the least likely partners (the
        older one among equals, as in PROB) and uses the probabilities of the join's policy. The others need no
        statistics.

    Examples
    --------
    >>> SlowCpu(service=1.5, queue=100).rate
    Fraction(3, 2)

    References
    ----------
    WINDOW 2.3. docs/windows.md.
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
                f"service is {self.service!r}; give the number of tuples joined per instant, more than a millionth "
                f"and less than {_MOST_TERMS}."
            )

    @property
    def rate(self) -> Fraction:
        """Tuples served per instant, as a fraction of small integers."""
        return Fraction(self.service).limit_denominator(_MOST_TERMS)

    @property
    def code(self) -> int:
        """Code of the drop rule in the kernels."""
        return DROP_BY_PARTNERS if self.model == "integrated" else _DROPS[self.drop]

    def accept(self, policy: Policy, windows: tuple[WindowLength, WindowLength]) -> None:
        """Raise `InvalidArgument` if a queue cannot be combined with this policy or these windows."""
        if any(window.by_tuples for window in windows):
            raise InvalidArgument(
                "a slow CPU drops tuples, which would change windows of tuples; give windows of time."
            )
        if self.code in (DROP_LEAST_PROBABLE, DROP_BY_PARTNERS) and not isinstance(policy, WeighingPolicy):
            raise InvalidArgument(
                f"the queue drops by probability (model {self.model!r}), but policy {policy.name!r} has no "
                "probabilities; give drop='random', or a policy with probabilities."
            )
