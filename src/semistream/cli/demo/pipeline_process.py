"""PipelineProcess: ``semistream run`` in a process of its own, which the demo kills and starts again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from semistream.cli.demo.folder import DemoFolder
from semistream.errors import SemistreamError
from semistream.pipelines.status import METRICS
from semistream.spark.demo import Batch
from semistream.spark.pipelines.listener import SPARK_METRICS

_RUN = "from semistream.cli.main import run; run()"
_POLL_S = 0.02
_MOST_S = 300.0


class PipelineProcess:
    """A pipeline that runs until it is stopped or killed, and what it has written down."""

    def __init__(self, folder: DemoFolder, cores: int) -> None:
        self._folder, self._cores = folder, cores
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the pipeline."""
        command = [sys.executable, "-c", _RUN, "run", str(self._folder.pipeline), "--master", f"local[{self._cores}]"]
        with self._folder.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        """Kill the pipeline, its JVM and its workers at once, as a power cut would."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Let the pipeline finish its batch and end."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(_MOST_S)

    def close(self) -> None:
        """End the pipeline if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def wait_until(self, done: Callable[[], bool], watch: Callable[[], None]) -> None:
        """Wait until ``done`` returns True, calling ``watch`` meanwhile; raise if the pipeline ends before."""
        assert self._process is not None
        begun = time.monotonic()
        while not done():
            watch()
            code = self._process.poll()
            if code is not None or time.monotonic() - begun > _MOST_S:
                raise SemistreamError(
                    f"the demo's pipeline {'hangs' if code is None else f'ended with code {code}'}; {self._folder.log} "
                    "says why."
                )
            time.sleep(_POLL_S)

    @property
    def is_listening(self) -> bool:
        """True once Spark's query has started."""
        return (self._folder.checkpoint / "spark" / "metadata").exists()

    @property
    def is_in_a_batch(self) -> bool:
        """True while a batch is planned, but not in its tables."""
        entries = self._folder.checkpoint / "batches"
        planned = sorted(entries.glob("*.planned.json"))
        return bool(planned) and not planned[-1].with_name(planned[-1].name.replace("planned", "done")).exists()

    def reports(self) -> list[dict[str, Any]]:
        """Return the pipeline's reports of its finished batches."""
        return _lines(self._folder.checkpoint / METRICS)

    def batches(self) -> list[Batch]:
        """Return the finished batches of the source, with Spark's duration of each."""
        seconds = {line["source_batch"]: line["seconds"] for line in _lines(self._folder.checkpoint / SPARK_METRICS)}
        return [
            Batch(
                number=report["source_batch"],
                rows=report["rows_in"],
                seconds=seconds.get(report["source_batch"], report["seconds"]),
                lag_s=report["lag_s"] or 0.0,
                bytes_moved=report["bytes_read"],
                at=report["at"],
            )
            for report in self.reports()
            if report["source_batch"] is not None
        ]


def _lines(file: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a file of JSON lines."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]
