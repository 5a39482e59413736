"""Decisions: the driver's choice of the rows to keep, small enough for a ledger, which each task applies to its part.

A `CutDecision` keeps the rows with more matches than a cut, and of the rows on the cut a quota in each part. Seeds and
ranks make random choices that a replay repeats.
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
from semistream.kernels.array_types import Bools, Floats, UInt64s
from semistream.keys.plain_types import batch_in, given_back_schema, plain_batch
from semistream.shedding.kernels import rank_rows
from semistream.shedding.stream_part import StreamPart


@dataclass(frozen=True)
class Account:
    """Rows and results that a decision keeps and sheds of a batch.

    Row counts are exact. Result counts are as exact as the matches. `KeepW` and `SampleW`, which use no matches, count
    one result per row; `ClusterSampling`, which draws rows at random, gives the expected numbers, rounded.

    Parameters
    ----------
    kept_rows, shed_rows : int
        Rows kept and shed.
    kept_results, shed_results : int
        Results of these rows.

    Examples
    --------
    >>> Account(kept_rows=60, shed_rows=40, kept_results=90, shed_results=10).share_lost
    0.1

    References
    ----------
    MESH 4.1. docs/shedding.md.
    """

    kept_rows: int
    shed_rows: int
    kept_results: int
    shed_results: int

    @property
    def share_lost(self) -> float:
        """Share of the results lost."""
        return self.shed_results / max(self.kept_results + self.shed_results, 1)


@dataclass(frozen=True)
class SampleDesign:
    """Design of a sample, as `semistream.shedding.estimate` needs it.

    Parameters
    ----------
    drawn : int
        Rows drawn at random, without those kept for certain.
    spread : float
        Sum of p (1 - p) over all rows of the batch, where p is a row's probability to be kept.

    Examples
    --------
    >>> from semistream.shedding import SampleW
    >>> SampleW().decide([SampleW().summarize(StreamPart(10))], 5, seed=1).design
    SampleDesign(drawn=5, spread=2.5)

    References
    ----------
    J. Hájek, Ann. Math. Statist. 35(4), 1964. docs/shedding.md.
    """

    drawn: int
    spread: float


@dataclass(frozen=True)
class Kept:
    """Mask of the rows of a part to keep, and the inclusion probability of each row, kept or not.

    Parameters
    ----------
    mask : array of bool
        True for the rows to keep, in the order of the part.
    inclusion : array of float
        Probability of each row to be kept, a share from 0 to 1.

    Examples
    --------
    >>> kept = Kept(np.array([True, False, True]), np.array([1.0, 0.5, 0.5]))
    >>> kept.rows, kept.weights.tolist()
    (2, [1.0, 2.0])
    >>> [batch.column("id").to_pylist() for batch in kept.split(pa.record_batch({"id": [7, 8, 9]}))]
    [[7, 9], [8]]

    References
    ----------
    docs/shedding.md.
    """

    mask: Bools
    inclusion: Floats

    @property
    def rows(self) -> int:
        """Number of rows kept."""
        return int(np.count_nonzero(self.mask))

    @property
    def weights(self) -> Floats:
        """Number of stream rows that each kept row represents: 1 over its inclusion probability."""
        return 1 / self.inclusion[self.mask]

    def slice(self, begin: int, rows: int) -> Kept:
        """Return the part for ``rows`` consecutive rows from ``begin`` on."""
        return Kept(self.mask[begin : begin + rows], self.inclusion[begin : begin + rows])

    def split(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return the kept rows and the shed rows of a batch, each in order."""
        if batch.num_rows != self.mask.size:
            raise InvalidArgument(
                f"the batch has {batch.num_rows} rows; the decision is about {self.mask.size}. Give the batch of the "
                "decision."
            )
        plain, own = plain_batch(batch), given_back_schema(batch.schema)  # Arrow filters no views
        kept, shed = plain.filter(pa.array(self.mask)), plain.filter(pa.array(~self.mask))
        return batch_in(kept, own), batch_in(shed, own)


@dataclass(frozen=True)
class Decision(ABC):
    """Decision on the rows of a batch to keep. A task needs only the decision and its own part to apply it.

    The same decision applied to the same part always keeps the same rows: written to a ledger by `to_json` before any
    work, it makes a replay shed the same rows again. A part that differs from the one decided on is refused.

    Strategies make decisions (`Strategy.decide`); `read_decision` reads one back.

    Parameters
    ----------
    strategy : str
        Name of the strategy that decided.
    seed : int
        Seed of the ranks of rows.
    parts, rows, kept : tuple of int
        Numbers of the batch's parts, ascending, with the rows of each part and how many of them it keeps.
    results : tuple of int or None
        Results of the rows of each part; None if the decision does not depend on them.
    account : Account
        Rows and results kept and shed in all parts.
    design : SampleDesign or None
        Design of the sample, for estimates; None if the kept rows are not a sample.

    Examples
    --------
    >>> from semistream.shedding import TopW
    >>> part = StreamPart(4, matches=np.array([1, 0, 5, 3]))
    >>> decision = TopW().decide([TopW().summarize(part)], 2, seed=0)
    >>> decision.apply(part).mask.tolist(), decision.account.shed_results
    ([False, False, True, True], 1)

    References
    ----------
    MESH 4.1. docs/shedding.md.
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
        """Return the rows of a part to keep; refuse a part that differs from the one decided on."""
        try:
            place = self.parts.index(part.number)
        except ValueError:
            raise InvalidArgument(
                f"part {part.number} was not summarised before the decision, which is about parts {list(self.parts)}. "
                "Divide the batch into the same parts as then."
            ) from None
        if self.rows[place] != part.rows:
            raise InvalidArgument(
                f"part {part.number} has {part.rows} rows, but had {self.rows[place]} when the decision was made. "
                "Divide the batch into the same parts as then."
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
                f"part {part.number} would keep {kept.rows} rows instead of the {self.kept[place]} decided: its "
                "matches or seconds differ from those of the decision. Give the same."
            )
        return kept

    def keeps_none(self, part: int, rows: int) -> bool:
        """True if a part of the decision, with this number of rows, keeps none of them."""
        return (part, rows, 0) in zip(self.parts, self.rows, self.kept, strict=True)

    def keeps_all(self, part: int, rows: int) -> bool:
        """True if a part of the decision, with this number of rows, keeps all of them."""
        return (part, rows, rows) in zip(self.parts, self.rows, self.kept, strict=True)

    @abstractmethod
    def _apply(self, part: StreamPart, place: int) -> Kept:
        """Return the rows of a part to keep; ``place`` is the part's index in the decision."""

    def to_json(self) -> str:
        """Return the decision as text; `read_decision` reads it back."""
        return json.dumps({"kind": self.kind, **asdict(self)}, separators=(",", ":"))

    @classmethod
    def _fields(cls, record: dict[str, Any]) -> dict[str, Any]:
        """Convert the fields common to all decisions from JSON."""
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
    """Return the seed of all random choices in one batch of a pipeline, from 0 to 2**64 - 1.

    It is the same on every replay and machine, and differs between batches.

    Parameters
    ----------
    pipeline : str
        Name of the pipeline.
    batch_id : int
        Number of the batch.

    Examples
    --------
    >>> batch_seed("orders", 7) == batch_seed("orders", 7), batch_seed("orders", 7) == batch_seed("orders", 8)
    (True, False)

    References
    ----------
    docs/shedding.md.
    """
    return int(xxhash.xxh64_intdigest(f"{batch_id}:{pipeline}".encode()))


def row_ranks(seed: int, part: int, rows: int) -> UInt64s:
    """Return a rank for each row of a part: all distinct, and determined by seed, part and row.

    The rows of least rank are a uniform sample of the part, as far as SplitMix64 looks random.
    """
    ranks = np.empty(rows, np.uint64)
    rank_rows(np.uint64(seed), np.uint64(part), ranks)
    return ranks


Places = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Cut:
    """Cut in the number of matches: rows with more than ``at`` are kept.

    Of the ``ties`` rows with exactly ``at`` matches, each part keeps its quota in ``quotas``. The cut applies to rows
    that take ``seconds`` each, or to all rows if that is None.
    """

    at: int
    ties: int
    quotas: tuple[int, ...]
    seconds: float | None = None

    @property
    def share(self) -> float:
        """Probability that a row on the cut is kept."""
        return sum(self.quotas) / self.ties if self.ties else 0.0


@dataclass(frozen=True)
class CutDecision(Decision):
    """Decision by cuts: one for all rows, or one for each cost.

    Ties go to the rows of least rank (``by_chance``: all equally likely), or else to the first rows of each part. If
    ``counts_matches`` is false, all rows tie, whatever their matches.
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
        """Return the rows above a cut, and those on it."""
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
        """Return the ``keep`` ties to keep."""
        if keep >= ties.size or not self.by_chance:
            return ties[:keep]
        ranks = row_ranks(self.seed, part.number, part.rows)[ties]
        return ties[np.argpartition(ranks, keep)[:keep]]

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> CutDecision:
        """Build from the JSON content of a decision."""
        cuts = tuple(Cut(**{**cut, "quotas": tuple(cut["quotas"])}) for cut in record["cuts"])
        return cls(**{**cls._fields(record), "cuts": cuts})
