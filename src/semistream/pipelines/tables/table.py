"""Tables of the warehouse that a pipeline appends to: files that workers wrote become visible, once for each batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from semistream.errors import InvalidArgument, PipelineError
from semistream.pipelines.carried_types import carried_schema
from semistream.pipelines.ledger.entries import WrittenFile
from semistream.pipelines.spec.pipeline_spec import TableSpec
from semistream.pipelines.tables.writer import TableLayout


class Table(ABC):
    """A table with a fixed ``schema``, in types that Spark and Delta have.

    ``owner`` names the pipeline and its checkpoint: what a batch of it has committed is not committed again. Its files
    are in the folder ``path``; where rows go elsewhere, they wait in ``outbox``, a folder of the checkpoint.
    """

    def __init__(self, spec: TableSpec, schema: pa.Schema, owner: Owner, outbox: Path) -> None:
        self.spec = spec
        self.path = outbox if spec.path is None else spec.path
        self.schema = carried_schema(schema)
        self.partition_by = spec.partition_by
        self.owner = owner
        for name in spec.partition_by:
            if name not in schema.names:
                raise InvalidArgument(
                    f"{spec.path} is to be partitioned by {name!r}, but its rows have {', '.join(schema.names)}."
                )
            if pa.types.is_binary(self.schema.field(name).type) or pa.types.is_nested(self.schema.field(name).type):
                raise InvalidArgument(
                    f"{spec.path} is to be partitioned by {name!r}, which is {schema.field(name).type}: no folder can "
                    "have such a name. Partition by another column."
                )
        for name in {*schema.names, *spec.partition_by}:
            if schema.names.count(name) > 1 or spec.partition_by.count(name) > 1:
                raise InvalidArgument(
                    f"the rows of {self.path} have {name!r} twice. Rename the source's column, or name another; "
                    "batch_id and stopped_at are the pipeline's own where rows stop on the way."
                )
        if set(spec.partition_by) == set(schema.names):
            raise InvalidArgument(f"{spec.path} is to be partitioned by all of its columns; leave at least one out.")

    @property
    @abstractmethod
    def layout(self) -> TableLayout:
        """Where workers write its files."""

    @abstractmethod
    def open(self) -> None:
        """Make the table if there is none, and refuse one that rows cannot be added to."""

    @abstractmethod
    def commit(self, batch: int, files: Sequence[WrittenFile]) -> None:
        """Let readers see the files of a batch; nothing happens if they do."""

    def shown(self, batch: int, files: Sequence[WrittenFile]) -> list[str]:  # noqa: ARG002
        """Where files of a batch are once they are committed, relative to the table's folder."""
        return [file.path for file in files]

    @abstractmethod
    def vacuum(self, in_use: set[str]) -> list[Path]:
        """Remove files that no reader sees, but for those ``in_use``; gives their paths."""


class Owner:
    """A pipeline by ``name``, and its checkpoint by the ``token`` that was drawn when it was made."""

    def __init__(self, name: str, token: str) -> None:
        self.name = name
        self.token = token


def require_same_columns(path: Path, found: pa.Schema, wanted: pa.Schema) -> None:
    """Refuse a table whose columns are not those of the rows to be added."""
    there, here = ({field.name: field.type for field in schema} for schema in (found, wanted))
    differences = [f"{name} is {type_} there" for name, type_ in there.items() if name not in here]
    differences += [f"{name} is {type_} in the pipeline" for name, type_ in here.items() if name not in there]
    differences += [
        f"{name} is {there[name]} there and {type_} in the pipeline"
        for name, type_ in here.items()
        if name in there and there[name] != type_
    ]
    if differences:
        raise PipelineError(
            f"the table {path} has other columns than the pipeline's rows: {'; '.join(differences)}. Give the pipeline "
            "another table, or change the columns that it gives out."
        )
