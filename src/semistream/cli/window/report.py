"""Report of ``semistream window``, as data and as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table

from semistream.budget import format_bytes
from semistream.cli.output import facts, render

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class CurvePoint:
    """Results of each policy with a memory of ``memory`` tuples; ``optimum`` is None unless requested."""

    memory: int
    results: Mapping[str, int]
    optimum: int | None


@dataclass(frozen=True)
class Windowed:
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
    curve: list[CurvePoint]
    out: str | None
    out_bytes: int | None
    plot: str | None
    notes: list[str]


@render.register
def _(report: Windowed) -> RenderableType:
    of_optimum = "" if report.optimum is None else f", {percent(report.results, report.optimum)} of the optimum"
    missing = report.stats["missing_estimate"]
    rows: list[tuple[str, object]] = [
        ("results", f"{report.results:,} ({percent(report.results, report.exact)} of the exact result{of_optimum})")
    ]
    if report.optimum is not None:
        rows.append(("optimum", f"{report.optimum:,} ({percent(report.optimum, report.exact)} of the exact result)"))
    rows += [("exact size", report.exact), ("memory", _memory(report))]
    rows += [(side, _tuples(report.stats[side])) for side in ("left", "right")]
    if missing:
        rows.append(("missing", f"about {missing:,.0f} results, by the join's own estimate"))
    solved = "" if report.optimum_seconds is None else f"; the optimum took {report.optimum_seconds:.2f} s"
    rows.append(("time", f"{report.seconds:.2f} s ({report.tuples_per_s:,} tuples/s){solved}"))
    if report.out is not None:
        rows.append(("written", f"{report.out} ({format_bytes(report.out_bytes or 0)})"))
    rows += [("plot", report.plot)] if report.plot else []
    rows += [("note", note) for note in report.notes]
    title = f"{report.left} join {report.right}, window {report.window}, {report.policy.upper()}"
    return Group(facts(*rows, title=title), *_curve(report))


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
