"""Decisions for stalled rows: numbers for new keys, and the first row of each key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from semistream.pipelines.ledger.entries import WaitingFile
from semistream.pipelines.plan.step_plans import StepPlan
from semistream.pipelines.steps.duplicates import SeenKeys
from semistream.pipelines.steps.surrogate_keys import SurrogateKeys
from semistream.relation import Transaction


@dataclass
class AddedKeys:
    """Versions of the relations with the new keys, by link, and the flag file of each file of rows."""

    versions: dict[int, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)


def decide(
    steps: Sequence[StepPlan], folder: Path, stalled: Sequence[WaitingFile], transaction: Transaction, batch: int
) -> AddedKeys:
    """Add the keys of stalled rows to their relations, once per transaction."""
    added = AddedKeys()
    for link in sorted({file.link for file in stalled}):
        files = [file for file in stalled if file.link == link]
        step = steps[link]
        own = Transaction(f"{transaction.writer}/{link}", transaction.number)
        if isinstance(step.keys, SurrogateKeys):
            added.versions[link] = step.keys.assign(folder, files, step.link.keys, own).version
        elif isinstance(step.keys, SeenKeys):
            relation, flags = step.keys.accept(folder, files, step.link.keys, own, batch)
            added.versions[link] = relation.version
            added.first |= {file.path: name for file, name in zip(files, flags, strict=True)}
    return added
