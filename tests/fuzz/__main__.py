"""``python -m tests.fuzz``: fuzz every kind of input, and report inputs, rate and new paths by kind.

Each kind runs in a process of its own, guided by coverage (libFuzzer, by atheris). A kind fails if an input raises
another error than `SemistreamError`, takes more than 5 seconds, kills the process, or if memory grows by 64 MB. The
input is kept in the folder ``fuzz-out``: add it to the corpus once the fault is mended. Paths found are kept there as
well, and the next run goes on from them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.fuzz.spark_rows import CHECKS
from tests.fuzz.targets import CORPUS, TARGETS

_STATS = re.compile(r"^stat::(\w+):\s+(\d+)", re.MULTILINE)
_MOST_BYTES = 4096
_BOUNDS_CHECKED = {"NUMBA_BOUNDSCHECK": "1"}  # kernels raise an error where they would leave an array
_PATIENCE_S = 300  # beyond its time: to start, and to compile kernels


def fuzz(kind: str, seconds: int, out: Path) -> dict[str, Any]:
    """Fuzz a kind; return its counts.

    An input that was slow only because the machine was busy passes when it is tried alone, and fuzzing goes on.
    """
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    report: dict[str, Any] = {"kind": kind, "inputs": 0, "per_s": 0, "new_paths": 0, "peak_mb": 0}
    while True:
        left = max(seconds - int(time.monotonic() - began), 1)
        if kind in CHECKS:
            command = [sys.executable, "-m", "tests.fuzz.spark_rows", kind, str(left)]
        else:
            command = _libfuzzer(kind, left, out)
        code = _run(command, left, out / f"{kind}.log")
        stats = dict(_STATS.findall((out / f"{kind}.log").read_text(errors="replace")))
        report["inputs"] += int(stats.get("number_of_executed_units", 0))
        report["new_paths"] += int(stats.get("new_units_added", 0))
        report["peak_mb"] = max(report["peak_mb"], int(stats.get("peak_rss_mb", 0)))
        slow = next(out.glob(f"{kind}-timeout-*"), None)
        if (
            code == 0
            or slow is None
            or _run([*_libfuzzer(kind, 1, out)[:-2], str(slow)], 5, out / f"{kind}.again") != 0
        ):
            break
        slow.unlink()
    report["per_s"] = int(report["inputs"] / (time.monotonic() - began))
    return {**report, "failed": code != 0}


def _run(command: list[str], seconds: int, log: Path) -> int:
    with log.open("wb") as told:
        environment, patience_s = {**os.environ, **_BOUNDS_CHECKED}, seconds + _PATIENCE_S
        done = subprocess.run(command, env=environment, stdout=told, stderr=told, timeout=patience_s, check=False)
    return done.returncode


def _libfuzzer(kind: str, seconds: int, out: Path) -> list[str]:
    """Return the command that fuzzes a kind with coverage."""
    found = out / kind
    found.mkdir(parents=True, exist_ok=True)
    options = {
        "max_total_time": seconds, "timeout": 5, "rss_limit_mb": 4096, "print_final_stats": 1, "max_len": _MOST_BYTES,
        "artifact_prefix": f"{out}/{kind}-",
    }  # fmt: skip
    command = [sys.executable, "-m", "tests.fuzz.kind", kind, *(f"-{name}={value}" for name, value in options.items())]
    return [*command, str(found), str(CORPUS / kind)]


def _tell(kind: str, *counts: Any) -> None:
    """Print a line of the table."""
    columns = [f"{count:>10,}" if isinstance(count, int) else f"{count:>10}" for count in counts]
    sys.stdout.write(f"{kind:12}{' '.join(columns)}\n")
    sys.stdout.flush()


def main() -> int:
    """Fuzz the kinds, share the time among them, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--kinds", nargs="+", choices=[*TARGETS, *CHECKS], default=[*TARGETS, *CHECKS])
    parser.add_argument("--out", type=Path, default=Path("fuzz-out"))
    given = parser.parse_args()
    seconds = max(int(given.minutes * 60 / len(given.kinds)), 1)
    _tell("kind", "inputs", "per s", "new paths", "peak MB")
    reports = []
    for kind in given.kinds:
        report = fuzz(kind, seconds, given.out.absolute())
        reports.append(report)
        told = f"  FAILED: see {given.out / kind}.log" if report["failed"] else ""
        _tell(*(report[name] for name in ("kind", "inputs", "per_s", "new_paths", "peak_mb")), told)
    _tell("in all", sum(report["inputs"] for report in reports))
    (given.out / "report.json").write_text(json.dumps(reports, indent=1))
    return int(any(report["failed"] for report in reports))


if __name__ == "__main__":
    sys.exit(main())
