"""Tables of Parquet files: written to a staging folder, then renamed to names fixed by batch and part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from semistream.errors import PipelineError
from semistream.pipelines.ledger.entries import WrittenFile
from semistream.pipelines.ledger.faults import reached
from semistream.pipelines.spec.pipeline_spec import TableSpec
from semistream.pipelines.tables.table import Owner, Table, require_same_columns
from semistream.pipelines.tables.writer import TableLayout
from semistream.storage.local_files import make_folder, sync_folder

_STAGING = "_staging"  # readers skip folders that begin with an underscore
_KNOWN = 1  # existing files to compare with the pipeline's columns


class ParquetSink(Table):
    """Table that appends to a folder of Parquet files.

    One rename publishes each file, so a reader sees a file whole or not at all, but may see some files of a batch
    before the others. Use a Delta table to publish a batch atomically.
    """

    def __init__(self, spec: TableSpec, schema: pa.Schema, owner: Owner, outbox: Path) -> None:
        super().__init__(spec, schema, owner, outbox)
        self._durable: set[Path] = set()  # folders that this object has made, or made durable

    @property
    def layout(self) -> TableLayout:
        """Layout of the files in the staging folder, where they stay until committed."""
        return TableLayout(str(self.path), self.schema, self.partition_by, staging=_STAGING, owner=self.owner.prefix)

    def open(self) -> None:
        """Create the folder if it is missing; refuse one with other columns or files of another checkpoint."""
        try:
            make_folder(self.path / _STAGING)
            self._durable = {self.path}
        except OSError as error:
            raise PipelineError(
                f"the table {self.path} cannot be created: {error.strerror}. Give a writable folder."
            ) from error
        shown = self._shown()
        for path in sorted(shown)[:_KNOWN]:
            require_same_columns(self.path, pq.read_schema(path).remove_metadata(), self.layout.file_schema)
        if other := [name for name in (path.name for path in shown) if self._is_foreign(name)]:
            raise PipelineError(
                f"the table {self.path} has rows of the pipeline {self.owner.name!r} from another checkpoint "
                f"({other[0]}). All rows would be added twice: restore that checkpoint, or use another pipeline name "
                "or table."
            )

    def commit(self, batch: int, files: Sequence[WrittenFile]) -> None:
        """Rename the staged files of a batch to their final names; skip those already renamed. Sync the folders."""
        folders: set[Path] = set()
        for file, shown in zip(files, self.shown(batch, files), strict=True):
            staged, final = self.path / file.path, self.path / shown
            folders.add(final.parent)
            if final.exists():
                continue
            if not staged.exists():
                raise PipelineError(
                    f"{staged}, a file of batch {batch}, is missing, and so is {final.name}, its final name. Restore "
                    "it, or give the pipeline a new table and a new checkpoint."
                )
            reached("before parquet rename")
            try:
                if final.parent not in self._durable:
                    make_folder(final.parent)
                    self._durable.add(final.parent)
                staged.rename(final)
            except OSError as error:
                raise self._refused(batch, error) from error
            reached("after parquet rename")
        try:
            for folder in sorted(folders):  # those of files already renamed as well: nothing tells if they are synced
                sync_folder(folder)
        except OSError as error:
            raise self._refused(batch, error) from error

    def _refused(self, batch: int, error: OSError) -> PipelineError:
        return PipelineError(
            f"batch {batch} cannot be committed to the table {self.path}: {error}. Its files are written; make the "
            "table writable and start the pipeline again."
        )

    def shown(self, batch: int, files: Sequence[WrittenFile]) -> list[str]:
        """Return the final names of the files of a batch, fixed by the batch and each file's position in it."""
        places = [Path(file.path).relative_to(_STAGING).parent for file in files]
        return [str(place / f"{self.owner.prefix}{batch:012d}-{part:05d}.parquet") for part, place in enumerate(places)]

    def vacuum(self, in_use: set[str]) -> list[Path]:
        """Remove staged files of this checkpoint that were never committed, except those ``in_use``."""
        keep = {self.path / name for name in in_use}
        removed = [path for path in (self.path / _STAGING).rglob(f"{self.owner.prefix}*.parquet") if path not in keep]
        for path in removed:
            path.unlink()
        return removed

    def _is_foreign(self, name: str) -> bool:
        """True if this pipeline committed the file from another checkpoint."""
        committed = rf"{re.escape(self.owner.name)}-[0-9a-f]{{8}}-\d{{12}}-\d{{5}}\.parquet"
        return re.fullmatch(committed, name) is not None and not name.startswith(self.owner.prefix)

    def _shown(self) -> list[Path]:
        return [path for path in self.path.rglob("*.parquet") if _STAGING not in path.relative_to(self.path).parts]
