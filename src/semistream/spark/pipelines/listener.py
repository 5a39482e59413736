"""PipelineListener: collect Spark's reports of a pipeline's query, in addition to the pipeline's own metrics."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from semistream.pipelines.batch.batch_report import Trigger
from semistream.pipelines.status import append_line
from semistream.storage.local_paths import local_path

_LOG = logging.getLogger(__name__)
_KEPT = 256  # triggers; more than Spark gives again at the end
SPARK_METRICS = "spark.jsonl"
"""File in the checkpoint folder with a JSON line for each batch that Spark has triggered."""


class PipelineListener(StreamingQueryListener):  # type: ignore[misc]
    """Spark listener that collects the triggers of one query, and appends each to a file as a JSON line.

    `Pipeline` registers one for its own query. Register one with ``spark.streams.addListener`` for another query. Each
    batch is recorded once; batches without work are not. Spark reports a batch from a thread of its own, a little
    after the pipeline's own report; `collect` is thread-safe.

    Parameters
    ----------
    name : str
        Name of the query; reports of other queries are ignored.
    file : Path
        File to append to, in an existing folder.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     listener = PipelineListener("orders", Path(folder) / "spark.jsonl")
    ...     writer = rows.writeStream.format("noop").option("checkpointLocation", folder).queryName("orders")
    ...     query = writer.trigger(availableNow=True).start()
    ...     finished = query.awaitTermination(60)
    ...     listener.collect(query.recentProgress)
    >>> listener.last.rows
    5

    References
    ----------
    docs/pipelines.md, "Metrics".
    """

    def __init__(self, name: str, file: Path) -> None:
        self._name, self._file = name, local_path(file)
        self._lock = Lock()
        self._triggers: dict[int, Trigger] = {}

    @property
    def triggers(self) -> list[Trigger]:
        """The last recorded triggers, in the order of their batches."""
        with self._lock:
            return [self._triggers[number] for number in sorted(self._triggers)]

    @property
    def last(self) -> Trigger | None:
        """Trigger of the last recorded batch; None before the first."""
        with self._lock:
            return self._triggers[max(self._triggers)] if self._triggers else None

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        """Log the start of the query."""
        if event.name == self._name:
            _LOG.info("Spark has started the query %s, run %s", event.name, event.runId)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Record a finished batch of the query."""
        if event.progress.name == self._name:
            self.collect([event.progress])

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Do nothing: an idle trigger has no batch."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Do nothing."""

    def collect(self, reports: Iterable[Any]) -> None:
        """Record progress reports; skip batches without work, and those recorded before."""
        with self._lock:
            for progress in reports:
                if "addBatch" in progress.durationMs and progress.batchId not in self._triggers:
                    trigger = self._triggers[progress.batchId] = Trigger.of(progress)
                    append_line(self._file, json.dumps(asdict(trigger)))
            for number in sorted(self._triggers)[:-_KEPT]:
                del self._triggers[number]


@contextmanager
def listening(spark: SparkSession, listener: PipelineListener) -> Iterator[None]:
    """Register a listener with Spark for the block."""
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        spark.streams.removeListener(listener)
