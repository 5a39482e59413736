"""Report of ``semistream window``, as data and as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table

from semistream.budget import format_bytes
from semistream.cli.output import Report, facts

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class PolicyResults:
    """Results of each policy with a memory of ``memory`` tuples; ``optimum`` is None unless requested."""

    memory: int
    results: Mapping[str, int]
    optimum: int | None


@dataclass(frozen=True)
class Windowed(Report):
    """A window join of two files in a memory, compared with the optimum and the exact result.

    ``exact`` is the size of the exact result, and ``exact_memory`` the number of tuples that suffices for it without
    evictions. ``stats`` holds the counts of `WindowStats`; ``seconds`` and ``tuples_per_s`` cover the join alone.
    """

    left: str
    right: str
    window: str
    memory: int | str
    policy: str
    allocation: str
    probabilities: str
    results: int
    optimum: int | None
    exact: int
    exact_memory: int
    stats: dict[str, Any]
    seconds: float
    tuples_per_s: int
    optimum_seconds: float | None
    curve: list[PolicyResults]
    out: str | None
    out_bytes: int | None
    plot: str | None
    notes: list[str]

    def text(self) -> RenderableType:
        of_optimum = "" if self.optimum is None else f", {percent(self.results, self.optimum)} of the optimum"
        missing = self.stats["missing_estimate"]
        rows: list[tuple[str, object]] = [
            ("results", f"{self.results:,} ({percent(self.results, self.exact)} of the exact result{of_optimum})")
        ]
        if self.optimum is not None:
            rows.append(("optimum", f"{self.optimum:,} ({percent(self.optimum, self.exact)} of the exact result)"))
        rows += [("exact size", self.exact), ("memory", _memory(self))]
        rows += [(side, _tuples(self.stats[side])) for side in ("left", "right")]
        if missing:
            rows.append(("missing", f"about {missing:,.0f} results, by the join's own estimate"))
        solved = "" if self.optimum_seconds is None else f"; the optimum took {self.optimum_seconds:.2f} s"
        rows.append(("time", f"{self.seconds:.2f} s ({self.tuples_per_s:,} tuples/s){solved}"))
        if self.out is not None:
            rows.append(("written", f"{self.out} ({format_bytes(self.out_bytes or 0)})"))
        rows += [("plot", self.plot)] if self.plot else []
        rows += [("note", note) for note in self.notes]
        title = f"{self.left} join {self.right}, window {self.window}, {self.policy.upper()}"
        return Group(facts(*rows, title=title), *_curve(self))


def percent(part: int, whole: int) -> str:
    """Format a share in percent; a share of zero counts as 100 %."""
    return f"{100 * part / whole:.1f} %" if whole else "100.0 %"


def _memory(report: Windowed) -> str:
    enough = f"exact with {report.exact_memory:,} tuples"
    if isinstance(report.memory, str):
        return f"{report.memory}, {report.allocation}; {enough}"
    share = percent(report.memory, report.exact_memory) if report.exact_memory else "all"
    return f"{report.memory:,} tuples, {report.allocation}: {share} of the {report.exact_memory:,} needed to be exact"


def _tuples(counts: Mapping[str, int]) -> str:
    shown = [f"{counts[name]:,} {name.replace('_', ' ')}" for name in ("evicted", "expired", "in_memory", "null_keys")]
    return f"{counts['rows_in']:,} tuples: {', '.join(shown)}"


def _curve(report: Windowed) -> Iterator[RenderableType]:
    """Yield a table of the shares of the exact result, one line per memory."""
    if not report.curve:
        return
    names = list(report.curve[0].results)
    shares = Table(box=None, pad_edge=False, header_style="bold")
    for header in ("memory", *(name.upper() for name in names), *([] if report.optimum is None else ["optimum"])):
        shares.add_column(header, justify="right", no_wrap=True)
    for point in report.curve:
        optimum = [] if point.optimum is None else [percent(point.optimum, report.exact)]
        shares.add_row(f"{point.memory:,}", *(percent(point.results[name], report.exact) for name in names), *optimum)
    yield ""
    yield shares
