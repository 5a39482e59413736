"""Draw the README's picture from a saved run of ``python -m benchmarks engine``: ``python -m benchmarks.picture``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from semistream.cli.plots import BLUE, GREY, plain_axes

_BARS = {
    "semistream, memory for 10 % of R": "semistream (auto), Zipf {exponent}, 10 %",
    "semistream, memory for 1 % of R": "semistream (auto), Zipf {exponent}, 1 %",
    "DuckDB, all of R in memory": "DuckDB per batch, Zipf {exponent}, R in memory",
    "DuckDB, memory for 10 % of R": "DuckDB per batch, Zipf {exponent}, same memory",
    "Polars, all memory": "Polars per batch, all memory, Zipf {exponent}",
    "LMDB look-ups, page cache warm": "LMDB look-ups (nested_loop), Zipf {exponent}",
}
_STREAMS = {"1": "Zipf 1 keys", "0": "uniform keys"}


def draw(record: dict[str, object]) -> Figure:
    """Bars of rows joined per second, by contestant, for a skewed and a uniform stream."""
    medians = {each["name"]: each["median"] for each in record["results"]}  # type: ignore[attr-defined, index]
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, (exponent, title) in zip(figure.subplots(1, 2, width_ratios=[1, 1]), _STREAMS.items(), strict=True):
        rates = {label: medians.get(name.format(exponent=exponent)) for label, name in _BARS.items()}
        shown = {label: rate for label, rate in rates.items() if rate is not None}
        colours = [BLUE if label.startswith("semistream") else GREY for label in shown]
        bars = axes.barh(list(shown), list(shown.values()), color=colours, height=0.7)
        axes.bar_label(bars, [f"{rate / 1e6:.2f} M" for rate in shown.values()], padding=4, fontsize=9)
        axes.invert_yaxis()
        axes.margins(x=0.18)
        axes.set_title(title, fontsize=10, loc="left")
        axes.xaxis.set_major_formatter(EngFormatter())
        axes.tick_params(labelsize=8.5, length=0)
        plain_axes(axes, "x")
        axes.spines["left"].set_visible(False)
    size = f"R of {10 * float(record['scale']):g} M rows x 120 bytes on disk"  # type: ignore[arg-type]
    figure.supxlabel(f"rows joined per second; {size}, {record['environment']['cores']} cores", fontsize=9)  # type: ignore[index]
    return figure


def main(saved: Path, picture: Path) -> None:
    draw(json.loads(saved.read_text())).savefig(picture, dpi=160)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:] or ["bench-out/engine.json", "docs/measured.png"]))
