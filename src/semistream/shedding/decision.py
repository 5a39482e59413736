"""Decisions: what the driver makes of the parts' summaries, small enough for a ledger, and what each task applies."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from semistream.errors import InvalidArgument
from semistream.kernels.types import Bools
from semistream.shedding.stream_part import Floats, StreamPart


@dataclass(frozen=True)
class Account:
    """What a decision keeps and sheds of a batch, in rows and in results.

    Rows are exact. Results are as exact as the matches; `KeepW` and `SampleW`, which ask for none, count one for each
    row, and `ClusterSampling`, where chance has the last word, gives what is to be expected, rounded.
    """

    kept_rows: int
    shed_rows: int
    kept_results: int
    shed_results: int

    @property
    def share_lost(self) -> float:
        """Which share of the results is lost."""
        return self.shed_results / max(self.kept_results + self.shed_results, 1)


@dataclass(frozen=True)
class SampleDesign:
    """What estimates have to know of a sample: see `semistream.shedding.estimate`.

    ``drawn`` is how many rows were drawn by chance, those that are kept for certain not counted; ``spread`` is the sum
    of p (1 - p) over all rows of the batch that are kept with probability p.
    """

    drawn: int
    spread: float


@dataclass(frozen=True)
class Kept:
    """The rows of a part that are kept, and with which probability each row, kept or not, was to be kept."""

    mask: Bools
    inclusion: Floats

    @property
    def rows(self) -> int:
        """How many are kept."""
        return int(np.count_nonzero(self.mask))

    @property
    def weights(self) -> Floats:
        """For each row that is kept, for how many rows of the stream it stands: 1 over its probability."""
        return 1 / self.inclusion[self.mask]

    def slice(self, begin: int, rows: int) -> Kept:
        """What is kept of some rows that follow each other."""
        return Kept(self.mask[begin : begin + rows], self.inclusion[begin : begin + rows])

    def split(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """The rows that are kept, and those that are shed: both in their order, and together all of them."""
        if batch.num_rows != self.mask.size:
            raise InvalidArgument(f"the batch has {batch.num_rows} rows; the decision is about {self.mask.size}.")
        return batch.filter(pa.array(self.mask)), batch.filter(pa.array(~self.mask))


@dataclass(frozen=True)
class Decision(ABC):
    """Which rows of one batch are kept. It says so for the rows of each part alone, so tasks need nothing else.

    The same decision applied to the same part always keeps the same rows: written to a ledger by `to_json` before any
    work, it makes a replay shed what was shed.

    Parameters
    ----------
    strategy
        Who has decided.
    seed
        From which ranks of rows are made.
    parts, rows, kept
        Numbers of the batch's parts, ascending, how many rows each has, and how many of them are kept.
    results
        How many results the rows of each part give; None if it makes no difference.
    account
        Rows and results kept and shed in all parts.
    design
        What estimates have to know, if what is kept is a sample; else None.
    """

    kind: ClassVar[str]
    strategy: str
    seed: int
    parts: tuple[int, ...]
    rows: tuple[int, ...]
    kept: tuple[int, ...]
    results: tuple[int, ...] | None
    account: Account
    design: SampleDesign | None

    def apply(self, part: StreamPart) -> Kept:
        """The rows of a part that are kept."""
        try:
            place = self.parts.index(part.number)
        except ValueError:
            raise InvalidArgument(
                f"part {part.number} was not summed up before the decision, which is about parts {list(self.parts)}. "
                "Cut the batch as it was cut then."
            ) from None
        if self.rows[place] != part.rows:
            raise InvalidArgument(
                f"part {part.number} has {part.rows} rows, but had {self.rows[place]} when the decision was made. "
                "Cut the batch as it was cut then."
            )
        if self.results is not None:
            results = int(part.require_matches(self.strategy).sum())
            if results != self.results[place]:
                raise InvalidArgument(
                    f"the rows of part {part.number} match {results} times, but {self.results[place]} times when the "
                    "decision was made. Take the matches from the same version of R."
                )
        kept = self._apply(part, place)
        if kept.rows != self.kept[place]:
            raise InvalidArgument(
                f"part {part.number} would keep {kept.rows} rows where {self.kept[place]} were decided: its matches or "
                "seconds are not those that the decision was made of. Give the same."
            )
        return kept

    def keeps_none(self, part: int, rows: int) -> bool:
        """Whether a part of so many rows, as it was summed up, keeps none of them."""
        return (part, rows, 0) in zip(self.parts, self.rows, self.kept, strict=True)

    def keeps_all(self, part: int, rows: int) -> bool:
        """Whether it keeps all of them."""
        return (part, rows, rows) in zip(self.parts, self.rows, self.kept, strict=True)

    @abstractmethod
    def _apply(self, part: StreamPart, place: int) -> Kept:
        """See `apply`; ``place`` is where the part stands among the decision's."""

    def to_json(self) -> str:
        """The decision as text; `read_decision` reads it back."""
        return json.dumps({"kind": self.kind, **asdict(self)}, separators=(",", ":"))

    @classmethod
    def _fields(cls, record: dict[str, Any]) -> dict[str, Any]:
        """The fields that all decisions have, as read back."""
        design = record["design"]
        return {
            **record,
            "parts": tuple(record["parts"]),
            "rows": tuple(record["rows"]),
            "kept": tuple(record["kept"]),
            "results": None if record["results"] is None else tuple(record["results"]),
            "account": Account(**record["account"]),
            "design": None if design is None else SampleDesign(**design),
        }
