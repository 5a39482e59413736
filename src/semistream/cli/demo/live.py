"""LiveBatches: the batches of a query in the terminal, a line each, as they finish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from semistream.cli.output import messages

if TYPE_CHECKING:
    from semistream.spark.demo import Batch

_BAR, _BAR_S = 20, 10.0  # a full bar is ten seconds


class LiveBatches:
    """Prints each finished batch once: its orders, seconds and lag, with a bar for its seconds."""

    def __init__(self, name: str, batches: int) -> None:
        self._name, self._batches = name, batches
        self._shown = 0
        self._say = messages().print

    def show(self, batches: Sequence[Batch]) -> None:
        """Print the batches that have not been printed yet."""
        for batch in batches[self._shown :]:
            bar = "█" * max(1, min(round(batch.seconds / _BAR_S * _BAR), _BAR))
            warm = "  (warm-up)" if batch.number == 0 else ""
            number, seconds = f"{batch.number + 1:>2}/{self._batches}", f"{batch.seconds:>5.1f} s"
            after = f"{batch.lag_s:>5.1f} s after arrival"
            self._say(f" {self._name:<12} {number}  {batch.rows:>7,} orders {seconds}, {after} {bar}{warm}")
        self._shown = max(self._shown, len(batches))

    def say(self, text: str) -> None:
        """Print a remark among the batches."""
        self._say(f" {self._name:<12} {text}")
