"""PROB: keep the tuples whose partners are likeliest to arrive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from semistream.kernels.window_classes import BY_CLASS
from semistream.windows.policy import WeighingPolicy


@dataclass(frozen=True)
class Prob(WeighingPolicy):
    """A tuple is worth the probability that a tuple of the other stream is its partner, times the weight of a result.

    The paper's PROB heuristic (WINDOW 4.2.1): p_S(r) for a tuple r of R. It takes no account of how long a tuple has to
    live, and works for unbounded windows as it is (6.2). A constant number of steps for each tuple.

    >>> Prob().name, Prob().probabilities
    ('prob', LearntProbabilities(half_life=None, refresh=None, width=None))
    """

    name: ClassVar[str] = "prob"
    code: ClassVar[int] = BY_CLASS
