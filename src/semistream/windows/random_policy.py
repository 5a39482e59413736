"""RANDOM: evict any tuple, all being equally likely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from semistream.kernels.window_classes import AT_RANDOM
from semistream.streams.zipf import whole_number
from semistream.windows.policy import Policy


@dataclass(frozen=True)
class Random(Policy):
    """The paper's RAND (WINDOW 5.2): the state of the art before it, and the baseline of its experiments.

    ``seed`` fixes the draws: equal streams lose equal tuples, however they are cut into batches, also after a restore.
    """

    name: ClassVar[str] = "random"
    code: ClassVar[int] = AT_RANDOM
    seed: int = 0

    def __post_init__(self) -> None:
        whole_number("seed", self.seed, least=0)
