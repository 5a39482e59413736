"""PipelineListener: what Spark says of a pipeline's query, next to our own line for each batch."""

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

_LOG = logging.getLogger(__name__)
SPARK_METRICS = "spark.jsonl"
"""The file in the checkpoint folder that has a JSON line for each batch that Spark has triggered."""


class PipelineListener(StreamingQueryListener):  # type: ignore[misc]
    """Collects the triggers of the query ``name``, and appends each to a file as a JSON line, once.

    Spark tells of a batch when it is over, a little after the pipeline's own report of it, from a thread of its own.
    """

    def __init__(self, name: str, file: Path) -> None:
        self._name, self._file = name, file
        self._lock = Lock()
        self._triggers: dict[int, Trigger] = {}

    @property
    def triggers(self) -> list[Trigger]:
        """All that were told of, in their order."""
        with self._lock:
            return [self._triggers[number] for number in sorted(self._triggers)]

    @property
    def last(self) -> Trigger | None:
        """The last batch that Spark has told of."""
        with self._lock:
            return self._triggers[max(self._triggers)] if self._triggers else None

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        """A query was started."""
        if event.name == self._name:
            _LOG.info("Spark has started the query %s, run %s", event.name, event.runId)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """A batch is over."""
        if event.progress.name == self._name:
            self.collect([event.progress])

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing has come."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """A query has ended."""

    def collect(self, reports: Iterable[Any]) -> None:
        """Take in reports of batches; those that had no work, or were told of before, are passed over."""
        with self._lock:
            for progress in reports:
                if "addBatch" in progress.durationMs and progress.batchId not in self._triggers:
                    trigger = self._triggers[progress.batchId] = Trigger.of(progress)
                    with self._file.open("a") as file:
                        file.write(json.dumps(asdict(trigger)) + "\n")


@contextmanager
def listening(spark: SparkSession, listener: PipelineListener) -> Iterator[None]:
    """Spark tells a listener of its queries within the block."""
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        spark.streams.removeListener(listener)
