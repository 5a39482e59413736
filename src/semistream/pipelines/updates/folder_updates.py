"""FolderUpdates: files that update a relation, in the order of their times, a limited number at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from semistream.errors import PipelineError
from semistream.pipelines.spec.step_spec import UpdatesSpec
from semistream.pipelines.updates.update_reader import UpdateReader
from semistream.relation import Relation
from semistream.storage.local_files import replace_file

_MOST_FILES, _MOST_BYTES = 1000, 256 << 20  # of one update; the driver holds its rows in memory
_RECENT = 1000  # names that the ledger's entry has; the others are in a file that is written once for so many


@dataclass(frozen=True, order=True)
class _Found:
    time_ns: int
    name: str
    nbytes: int


class FolderUpdates:
    """Files of a folder as updates of ``relation``. A name is taken once, as long as its file is there.

    An update's content has its ``files``, and in ``seen`` the files taken last. Names taken before are in a file beside
    the ledger's entry, which forgets those whose files are gone. So it grows with the folder, not with time.
    """

    def __init__(self, spec: UpdatesSpec, relation: Path, ledger_folder: Path, label: str) -> None:
        assert spec.path is not None
        self._spec, self._folder, self._relation = spec, spec.path, relation
        self._older_path = ledger_folder / f"{label}.seen.json"

    def pieces(self, reader: UpdateReader, before: Mapping[str, Any], number: int) -> Iterator[dict[str, Any]]:  # noqa: ARG002
        """Yield updates with the files that are there now and came since the update ``before``."""
        recent, older = list(before.get("seen", [])), self._older(before)
        there = self._listed()
        new = self._found({*recent, *older}, there)
        for files in _cut(sorted(new)):
            if len(recent) >= _RECENT:
                older = (older | set(recent)) & there
                replace_file(self._older_path, json.dumps(sorted(older)).encode())
                recent = []
            recent = [*recent, *files]
            yield {"files": files, "seen": recent, "older": len(older)}

    def rows(
        self,
        reader: UpdateReader,
        relation: Relation,  # noqa: ARG002
        columns: Mapping[str, str],
        content: Mapping[str, Any],
    ) -> pa.Table:
        """Return the rows of an update's files."""
        return reader.read_files(self._spec, columns, [self._folder / name for name in content["files"]])

    def forget(self, content: Mapping[str, Any]) -> None:
        """Do nothing: the files are not ours."""

    def _listed(self) -> set[str]:
        try:
            return {path.name for path in self._folder.iterdir() if not path.name.startswith(("_", "."))}
        except OSError as error:
            raise PipelineError(
                f"{self._folder}, the source of updates of {self._relation}, cannot be listed: {error.strerror}. "
                "Create the folder, or name another."
            ) from error

    def _found(self, seen: set[str], there: set[str]) -> Iterator[_Found]:
        """Yield the new files among the names ``there``; one that has just been removed is not new."""
        for name in there - seen:
            path = self._folder / name
            if path.is_file():
                try:
                    status = path.stat()
                except FileNotFoundError:
                    continue
                yield _Found(status.st_mtime_ns, name, status.st_size)

    def _older(self, before: Mapping[str, Any]) -> set[str]:
        """Return the names taken before those that the ledger's entry has."""
        if not before.get("older"):
            return set()
        try:
            return set(map(str, json.loads(self._older_path.read_bytes())))
        except (OSError, ValueError, TypeError) as error:
            raise PipelineError(
                f"{self._older_path}, the names of the update files that {self._relation} has, cannot be read "
                f"({error}). Restore it from a copy: without it, all of them would be applied again."
            ) from error


def _cut(found: Sequence[_Found]) -> Iterator[list[str]]:
    """Cut files into updates of limited size."""
    names: list[str] = []
    held = 0
    for file in found:
        if names and (len(names) == _MOST_FILES or held + file.nbytes > _MOST_BYTES):
            yield names
            names, held = [], 0
        names.append(file.name)
        held += file.nbytes
    if names:
        yield names
