"""UpdateReader: the contract of the engine that reads update files and messages, such as Spark."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from semistream.pipelines.spec.step_spec import UpdatesSpec

DELETES = "__deletes"
"""Column that flags rows that delete their key."""


@dataclass(frozen=True)
class TopicRange:
    """Offsets of a partition: its ``first`` message, and the ``end`` of the committed ones (exclusive)."""

    first: int
    end: int


class UpdateReader(ABC):
    """Reader of a relation's updates. Rows have the relation's columns, and `RAW` has the text of unreadable ones.

    ``columns`` maps their names to types as a pipeline file writes them.
    """

    @abstractmethod
    def read_files(self, spec: UpdatesSpec, columns: Mapping[str, str], files: Sequence[Path]) -> pa.Table:
        """Return the rows of files, in the order of the files and of the rows in them."""

    @abstractmethod
    def ranges(self, spec: UpdatesSpec) -> dict[int, TopicRange]:
        """Return the offset range of every partition of the topic, by number, in ascending order."""

    @abstractmethod
    def read_messages(self, spec: UpdatesSpec, starts: Mapping[int, int], ends: Mapping[int, int]) -> pa.Table:
        """Return the key, value, partition and offset of the messages from ``starts`` to ``ends`` (exclusive)."""

    @abstractmethod
    def parse_messages(
        self, spec: UpdatesSpec, columns: Mapping[str, str], key: Sequence[str], messages: Path
    ) -> pa.Table:
        """Return the rows of stored messages in their order, and `DELETES`: true for a message without a value.

        Such a message deletes the ``key`` that its own key has as text, if that is a single column.
        """
