"""Decisions: what the driver makes of the parts' summaries, small enough for a ledger, and what each task applies.

CutDecision: rows with more matches than a cut are kept, and of those on it so many in each part.

Seeds and ranks: chance that a replay repeats.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Bools, UInt64s
from semistream.shedding.kernels import rank_rows
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


def batch_seed(pipeline: str, batch_id: int) -> int:
    """The seed of all that is decided by chance in one batch of a pipeline, from 0 to 2**64 - 1.

    >>> batch_seed("orders", 7) == batch_seed("orders", 7), batch_seed("orders", 7) == batch_seed("orders", 8)
    (True, False)
    """
    return int(xxhash.xxh64_intdigest(f"{batch_id}:{pipeline}".encode()))


def row_ranks(seed: int, part: int, rows: int) -> UInt64s:
    """A rank for each row of a part: all different, and the same whenever seed, part and row are.

    The rows of least rank are a uniform sample of the part, as far as SplitMix64 looks random.
    """
    ranks = np.empty(rows, np.uint64)
    rank_rows(np.uint64(seed), np.uint64(part), ranks)
    return ranks


Places = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Cut:
    """Of rows that take ``seconds`` (None: of all rows), those with matches > ``at`` are kept.

    Of the ``ties``, the rows of all parts that have exactly so many, ``quotas`` of each part are kept too.
    """

    at: int
    ties: int
    quotas: tuple[int, ...]
    seconds: float | None = None

    @property
    def share(self) -> float:
        """With which probability a row on the cut is kept."""
        return sum(self.quotas) / self.ties if self.ties else 0.0


@dataclass(frozen=True)
class CutDecision(Decision):
    """One cut for all rows, or one for those of each cost.

    Ties go to the rows of least rank (``by_chance``: each is as likely as any other), or to those that came first. If
    ``counts_matches`` is false all rows tie, whatever their matches.
    """

    kind: ClassVar[str] = "cut"
    cuts: tuple[Cut, ...]
    by_chance: bool
    counts_matches: bool

    def _apply(self, part: StreamPart, place: int) -> Kept:
        mask = np.zeros(part.rows, np.bool_)
        inclusion = np.zeros(part.rows)
        for cut in self.cuts:
            above, ties = self._divide(cut, part)
            kept = self._first(ties, cut.quotas[place], part)
            mask[above] = mask[kept] = True
            inclusion[above] = 1.0
            if self.by_chance:
                inclusion[ties] = cut.share
            else:
                inclusion[kept] = 1.0
        return Kept(mask, inclusion)

    def _divide(self, cut: Cut, part: StreamPart) -> tuple[Places, Places]:
        """The rows above a cut, and those on it."""
        if not self.counts_matches:
            return np.empty(0, np.intp), np.arange(part.rows)
        matches = part.require_matches(self.strategy)
        above, ties = matches > cut.at, matches == cut.at
        if cut.seconds is not None:
            own = part.require_seconds(self.strategy) == cut.seconds
            above &= own
            ties &= own
        return np.flatnonzero(above), np.flatnonzero(ties)

    def _first(self, ties: Places, keep: int, part: StreamPart) -> Places:
        """Those of the ties that are kept."""
        if keep >= ties.size or not self.by_chance:
            return ties[:keep]
        ranks = row_ranks(self.seed, part.number, part.rows)[ties]
        return ties[np.argpartition(ranks, keep)[:keep]]

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> CutDecision:
        """The decision read back."""
        cuts = tuple(Cut(**{**cut, "quotas": tuple(cut["quotas"])}) for cut in record["cuts"])
        return cls(**{**cls._fields(record), "cuts": cuts})
