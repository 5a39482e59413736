"""Report of a benchmark: measurements with machine, versions and commit, as JSON and as a table."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console
from rich.table import Table

_PACKAGES = ("semistream", "pyarrow", "numpy", "numba", "duckdb", "polars", "lmdb", "pyspark", "ortools")


@dataclass
class Measurement:
    """Rows or bytes per second of one contestant in each repetition; the median counts."""

    name: str
    per_second: list[float]
    unit: str = "rows/s"
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.per_second)


@dataclass
class Requirement:
    """A required ratio and the measured one."""

    what: str
    least: float
    measured: float

    @property
    def met(self) -> bool:
        return self.measured >= self.least


@dataclass
class Report:
    """Result of one benchmark."""

    benchmark: str
    scale: float
    setup: str
    measurements: list[Measurement] = field(default_factory=list)
    requirements: list[Requirement] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def add(self, name: str, per_second: list[float], *, unit: str = "rows/s", note: str = "") -> Measurement:
        measurement = Measurement(name, per_second, unit, note)
        self.measurements.append(measurement)
        return measurement

    def require(self, what: str, least: float, measured: float) -> None:
        self.requirements.append(Requirement(what, least, measured))

    def remark(self, text: str) -> None:
        """Add a conclusion without a requirement."""
        self.remarks.append(text)

    def save(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.benchmark}.json"
        results = [asdict(m) | {"median": m.median} for m in self.measurements]
        required = [asdict(r) | {"met": r.met} for r in self.requirements]
        record = {
            "benchmark": self.benchmark,
            "scale": self.scale,
            "setup": self.setup,
            "results": results,
            "required": required,
            "remarks": self.remarks,
            "environment": environment(),
        }
        path.write_text(json.dumps(record, indent=1))
        return path

    def show(self, console: Console) -> None:
        table = Table(title=f"{self.benchmark}: {self.setup}", title_justify="left")
        for heading, justify in (("", "left"), ("median", "right"), ("min - max", "right"), ("", "left")):
            table.add_column(heading, justify=justify)  # type: ignore[arg-type]
        for m in self.measurements:
            spread = f"{amount(min(m.per_second), m.unit)} - {amount(max(m.per_second), m.unit)}"
            table.add_row(m.name, amount(m.median, m.unit), spread, m.note)
        console.print(table)
        for r in self.requirements:
            verdict = "[green]met[/]" if r.met else "[red]missed[/]"
            console.print(f"  {r.what}: {r.measured:.2f} (at least {r.least:g} required) {verdict}")
        for text in self.remarks:
            console.print(f"  {text}")


def amount(value: float, unit: str) -> str:
    if unit == "bytes/s":
        return f"{value / 1e9:.2f} GB/s"
    return f"{value / 1e6:.3f} M {unit}" if value >= 1e4 else f"{value:,.0f} {unit}"


def environment() -> dict[str, object]:
    """Return the machine, versions and commit of this run."""
    return {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "versions": {name: found for name in _PACKAGES if (found := _version(name))},
        "commit": _commit(),
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    return done.stdout.strip() or "unknown"
