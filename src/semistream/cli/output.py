"""Printing: reports as text or JSON on stdout, messages and progress on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import singledispatch
from typing import TYPE_CHECKING, Any

from rich.bar import Bar
from rich.console import Console, Group, RenderableType
from rich.table import Table

from semistream.budget import format_bytes
from semistream.cli.reports import Calibrated, Joined, RelationInfo, Spread, Vacuumed, VerifiedRelation, Written

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def show(report: DataclassInstance, *, as_json: bool) -> None:
    """Print a report on stdout, as one JSON object or as text."""
    if as_json:
        print(json.dumps(plain(report), indent=2))
    else:
        # Table cells fold at the console's width; a pipe has no width, so give it a generous one.
        console = Console(width=None if sys.stdout.isatty() else 160, highlight=False, markup=False, emoji=False)
        console.print(render(report), soft_wrap=True)


def messages() -> Console:
    """Return the console for progress and messages: stderr, since stdout is for reports."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def facts(*rows: tuple[str, object], title: str | None = None) -> Table:
    """Lay out names and values as a two-column table."""
    pairs = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None, pad_edge=False)
    pairs.add_column(style="cyan", no_wrap=True)
    pairs.add_column(overflow="fold")
    for name, value in rows:
        pairs.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
    return pairs


def size(nbytes: int) -> str:
    """Format a number of bytes both rounded and exactly."""
    return f"{format_bytes(nbytes)} ({nbytes:,} bytes)" if nbytes >= 1000 else format_bytes(nbytes)


@singledispatch
def plain(report: DataclassInstance) -> dict[str, Any]:
    """Convert a report to plain values for JSON; reports with other values register their own conversion."""
    return asdict(report)


@singledispatch
def render(report: DataclassInstance) -> RenderableType:
    """Render a report as text; each report type registers its own function."""
    raise TypeError(f"no text form for {type(report).__name__}")


@render.register
def _(report: RelationInfo) -> RenderableType:
    columns = Table(box=None, pad_edge=False, header_style="bold")
    group_of = {name: i for i, group in enumerate(report.column_groups) for name in group}
    for header in ("column", "type", ""):
        columns.add_column(header)
    if len(report.column_groups) > 1:
        columns.add_column("group", justify="right")
    for column in report.columns:
        place = f"key {report.key.index(column.name) + 1}" if column.name in report.key else ""
        marks = [place, "" if column.nullable else "not null"]
        group = [str(group_of[column.name])] if len(report.column_groups) > 1 else []
        columns.add_row(column.name, column.type, " ".join(filter(None, marks)), *group)
    unreachable = " (unreachable by joins)" if report.null_key_rows else ""
    return Group(
        facts(
            (
                "version",
                f"{report.version} (available: {', '.join(map(str, report.versions))}; published {report.created})",
            ),
            ("key", ", ".join(report.key)),
            ("rows", report.rows),
            ("null-key rows", f"{report.null_key_rows:,}{unreachable}"),
            ("bytes", size(report.bytes)),
            (
                "pages",
                f"{report.pages:,} of up to {format_bytes(report.page_bytes)}, fill factor {report.fill_factor:g}",
            ),
            ("bytes per page", _spread(report.bytes_per_page)),
            ("rows per page", _spread(report.rows_per_page)),
            title=report.path,
        ),
        "",
        columns,
    )


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return "no pages"
    return f"min {spread.least:,}, median {spread.median:,}, 90th percentile {spread.p90:,}, max {spread.most:,}"


@render.register
def _(report: Written) -> RenderableType:
    rate = f" ({report.rows / report.seconds:,.0f} rows/s)" if report.before is None and report.seconds else ""
    change = f" (version {report.before} had {report.rows_before:,})" if report.before is not None else ""
    return facts(
        ("version", report.version),
        ("rows", f"{report.rows:,}{change}"),
        ("null-key rows", report.null_key_rows),
        ("pages", report.pages),
        ("bytes", size(report.bytes)),
        ("time", f"{report.seconds:.2f} s{rate}"),
        title=report.path,
    )


@render.register
def _(report: VerifiedRelation) -> RenderableType:
    return (
        f"{report.path}: version {report.version} is intact: {report.rows:,} rows in {report.pages:,} pages, "
        f"{report.files} files, {format_bytes(report.bytes)} read in {report.seconds:.2f} s"
    )


@render.register
def _(report: Vacuumed) -> RenderableType:
    kept = ", ".join(map(str, report.versions))
    return Group(*report.removed, f"{report.path}: {len(report.removed)} files removed; remaining versions: {kept}")


@render.register
def _(report: Joined) -> RenderableType:
    stats = report.stats
    return facts(
        ("rows in", stats["rows_in"]),
        ("  matched", stats["matched"]),
        ("  unmatched", stats["unmatched"]),
        ("rows out", stats["outputs"]),
        ("pages read", f"{stats['pages_read']:,} in {stats['requests']:,} requests"),
        ("bytes read", format_bytes(stats["bytes_read"])),
        ("budget", f"{format_bytes(stats['budget_bytes'])}, peak {format_bytes(stats['peak_bytes'])}"),
        ("time", f"{report.seconds:.2f} s ({report.rows_per_s:,} rows/s)"),
        ("written", f"{report.out} ({format_bytes(report.out_bytes)})"),
        title=f"{report.stream} {report.how} join {report.relation} (version {report.relation_version})",
    )


_BAR_WIDTH = 24


@render.register
def _(report: Calibrated) -> RenderableType:
    requests = table("bytes", "requests", "time", "fitted", "throughput")
    fastest = max(each.bytes_per_s for each in report.requests)
    for each in report.requests:
        times = [f"{seconds * 1e6:,.1f} µs" for seconds in (each.seconds, each.fitted_seconds)]
        rate = f"{format_bytes(round(each.bytes_per_s))}/s"
        requests.add_row(f"{each.bytes:,}", f"{each.requests:,}", *times, rate, bar(each.bytes_per_s, fastest))
    per_byte = report.transfer_s_per_byte
    transfer = f"{format_bytes(round(1 / per_byte))}/s" if per_byte else "no measurable time"
    return Group(
        facts(
            ("machine", f"{report.processor}, {report.cores} cores"),
            ("disk", f"{report.disk}, {'direct' if report.direct else 'buffered'} reads"),
            ("seek", f"{report.seek_s * 1e6:,.1f} µs"),
            ("transfer", transfer),
            ("at once", f"{report.at_once:.2f} times the throughput with concurrent requests"),
            ("page cache", f"{format_bytes(round(report.page_cache_bytes))} available for memory-mapped files"),
            title=report.path,
        ),
        "",
        requests,
        "",
        *_operators(report.operators),
        facts(
            *(("note", note) for note in report.notes),
            ("profile", report.profile),
            *([("plot", report.plot)] if report.plot else []),
            ("time", f"{report.seconds:.1f} s"),
        ),
    )


def _operators(operators: Mapping[str, Mapping[str, float]]) -> list[RenderableType]:
    """List each operator's measured cost per unit of work, leaving out costs of zero."""
    if not operators:
        return []
    from semistream.tuning.wording import cost_text  # imports NumPy, which other reports do not need

    costs_table = Table("operator", "time per unit", box=None, pad_edge=False, header_style="bold")
    for name, costs in operators.items():
        taken = (f"{unit.removesuffix('_s')} {cost_text(seconds)}" for unit, seconds in costs.items() if seconds)
        costs_table.add_row(name, ", ".join(taken))
    return [costs_table, ""]


def table(*headers: str) -> Table:
    """Create a table of right-aligned columns with room for a bar after them."""
    columns = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        columns.add_column(header, justify="right", no_wrap=True)
    columns.add_column("", width=_BAR_WIDTH)
    return columns


def bar(value: float, most: float) -> Bar:
    """Draw a bar whose length is the ratio of ``value`` to ``most``."""
    return Bar(size=most or 1, begin=0, end=value, width=_BAR_WIDTH)
