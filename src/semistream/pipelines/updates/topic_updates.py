"""TopicUpdates: Kafka messages that update a relation, read in pieces and stored until they are applied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from semistream.errors import PipelineError
from semistream.pipelines.spec.step_spec import UpdatesSpec
from semistream.pipelines.updates.update_reader import TopicRange, UpdateReader
from semistream.relation import Relation
from semistream.storage.local_files import whole_file

_MOST = 500_000  # messages of one update; the driver holds them in memory


class TopicUpdates:
    """Messages of a topic as updates of a relation.

    A value is a JSON row to upsert. A message without a value deletes the row whose key is the message's key as text;
    this is for relations with a single key column. Within a partition the last message of a key wins. All messages of
    a key must be in one partition, as Kafka's default partitioner ensures.
    """

    def __init__(self, spec: UpdatesSpec, folder: Path, label: str) -> None:
        self._spec, self._folder, self._label = spec, folder, label

    def pieces(self, reader: UpdateReader, before: Mapping[str, Any], number: int) -> Iterator[dict[str, Any]]:
        """Yield updates with the messages that are there now and came since the update ``before``.

        The messages of an update are stored in a file with its ``number``; the content has its name and the end
        offsets. New partitions are read from their beginning.
        """
        ranges = reader.ranges(self._spec)
        known = {int(number): int(offset) for number, offset in before.get("offsets", {}).items()}
        starts = {number: known.get(number, each.first) for number, each in ranges.items()}
        for partition, each in ranges.items():
            self._require_there(partition, starts[partition], each)
        while any(starts[partition] < each.end for partition, each in ranges.items()):
            ends, left = {}, _MOST
            for partition, each in ranges.items():
                ends[partition] = min(each.end, starts[partition] + left)
                left -= ends[partition] - starts[partition]
            messages = reader.read_messages(self._spec, starts, ends)
            name = f"{self._label}-{number}.messages.parquet"
            write_aside(self._folder / name, messages)
            offsets = {str(partition): end for partition, end in ends.items()}
            yield {"messages": name, "rows": messages.num_rows, "offsets": offsets}
            starts, number = ends, number + 1

    def rows(
        self, reader: UpdateReader, relation: Relation, columns: Mapping[str, str], content: Mapping[str, Any]
    ) -> pa.Table:
        """Parse the stored messages of an update into rows."""
        return reader.parse_messages(self._spec, columns, relation.key, self._folder / content["messages"])

    def forget(self, content: Mapping[str, Any]) -> None:
        """Remove the stored messages of an applied update."""
        (self._folder / content["messages"]).unlink(missing_ok=True)

    def _require_there(self, partition: int, start: int, found: TopicRange) -> None:
        if found.first <= start <= found.end:
            return
        raise PipelineError(
            f"updates were read up to offset {start} of partition {partition} of the topic {self._spec.topic!r}, which "
            f"now has offsets from {found.first} to {found.end}: updates are lost, or the topic is another one. "
            "Rebuild the relation, and give the pipeline a new checkpoint."
        )


def write_aside(path: Path, table: pa.Table) -> None:
    """Write a table to a Parquet file, atomically."""
    with whole_file(path) as file:
        pq.write_table(table, file)
