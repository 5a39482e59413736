"""Explanation of a join as text tables, and as plain values for JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from semistream.budget import format_bytes
from semistream.cli.output import Report, bar, facts, size, table
from semistream.costs.prediction import Prediction
from semistream.tuning.explanation import Explanation
from semistream.tuning.wording import described, latency_text, pace_text, rate_text, seconds_text


@dataclass(frozen=True)
class Explained(Report):
    """Explanation of a join with a relation, and the file of its plot, if any."""

    relation: str
    explanation: Explanation
    plot: str | None

    def plain(self) -> dict[str, Any]:
        return self.explanation.as_dict()

    def text(self) -> RenderableType:
        explanation, choice = self.explanation, self.explanation.choice
        target = [("target", explanation.target)] if explanation.target else []
        shown: list[RenderableType] = [
            facts(
                ("operator", f"{described(choice)}: {explanation.reason}"),
                ("memory", size(explanation.memory_bytes)),
                ("rate", pace_text(choice)),
                *target,
                ("latency", latency_text(choice)),
                ("hit rate", f"{choice.hit_rate:.1%}"),
                ("machine", explanation.machine_text.replace("--on R", f"--on {self.relation}")),
                title=self.relation,
            ),
            "",
            _parts(explanation),
            "",
            _operators(explanation),
        ]
        if explanation.changes:
            shown += ["", Text("what would change the choice", style="bold"), *explanation.changes]
        if self.plot:
            shown += ["", facts(("plot", self.plot))]
        return Group(*shown)


def _parts(explanation: Explanation) -> Table:
    """Break the memory down into its uses."""
    parts = table("memory", "", "share")
    parts.columns[0].justify = "left"
    largest = max(explanation.parts.values())
    for name, nbytes in explanation.parts.items():
        share = nbytes / explanation.memory_bytes
        parts.add_row(name, format_bytes(nbytes), f"{share:.1%}", bar(nbytes, largest))
    return parts


def _operators(explanation: Explanation) -> Table:
    """List the best setting of every operator, and the memory that operators too large for this one need."""
    operators = table("operator", "rate", "bound by", "hit rate", "median", "worst")
    operators.columns[0].justify = "left"
    tried = [explanation.choice, *explanation.alternatives]
    finite = [each.rate for each in tried if math.isfinite(each.rate)]
    for each in tried:
        operators.add_row(*_row(each), bar(min(each.rate, max(finite, default=1.0)), max(finite, default=1.0)))
    for name, least in explanation.refused.items():
        operators.add_row(name, f"needs {size(least)}")
    return operators


def _row(prediction: Prediction) -> list[str]:
    waits = [prediction.median_latency_s, prediction.worst_latency_s]
    return [
        described(prediction),
        rate_text(prediction.rate),
        prediction.bound_by if math.isfinite(prediction.rate) else "",
        f"{prediction.hit_rate:.1%}",
        *(seconds_text(seconds) if math.isfinite(seconds) else "no bound" for seconds in waits),
    ]
