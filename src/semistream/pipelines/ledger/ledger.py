"""Ledger: durable record of the plan, the prepared files and the commit of each batch, from which a restart resumes."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from semistream.errors import PipelineError, PipelineRunning
from semistream.pipelines.ledger.entries import (
    ArchivedBatch,
    BatchManifest,
    Entry,
    Plan,
    ShedPlan,
    TaskResult,
    WaitingFile,
)
from semistream.pipelines.ledger.faults import reached
from semistream.storage.disk_errors import disk_errors
from semistream.storage.local_files import leftovers, make_folder, replace_file, sync_folder
from semistream.storage.locks import process_lock

FORMAT = 1
Value = TypeVar("Value")
EntryKind = TypeVar("EntryKind", bound=Entry)
_IDENTITY, _LOCK, _BATCHES, _UPDATES, _ARCHIVED = "pipeline.json", "lock", "batches", "updates", "archived"
_NUMBER = "[0-9]" * 12  # of a batch, in the names of its files
_KEPT = 100  # done batches whose entries are kept; Spark keeps as many of its own


class Ledger:
    """Ledger of one pipeline in its checkpoint folder: one file for each batch and stage.

    The ``token``, drawn at random when the checkpoint is created, tells it from other checkpoints of the same pipeline.

    A batch goes through these stages:

    - *planned*: its inputs and relation versions are fixed;
    - *shed*: if there is no time for all of its rows, the choice of rows to join is fixed;
    - *staged*: once for each decision that needs the whole batch, such as new keys, when all other rows are written;
    - *prepared*: all its files are written;
    - *done*: all its tables show the files.

    Each entry is written under a temporary name, synced and renamed, so that it exists whole or not at all. A prepared
    batch is only committed, never computed again; a done batch is not touched. Batches run one after the other: only
    the last may be unfinished.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.token = ""
        self._batches = folder / _BATCHES
        self._last_prepared: BatchManifest | None = None  # as last read or written

    @classmethod
    @contextmanager
    def open(cls, folder: Path, name: str) -> Iterator[Ledger]:
        """Open the ledger for writing, by one process at a time; create it if it is missing."""
        try:
            for part in (_BATCHES, _UPDATES):
                make_folder(folder / part)
        except OSError as error:
            raise PipelineError(
                f"the checkpoint {folder} cannot be created: {error.strerror}. Give a writable folder."
            ) from error

        with cls._locked(folder, name):
            ledger = cls(folder, name)
            ledger._identify()
            for part in (_BATCHES, _UPDATES, _ARCHIVED):
                for left in leftovers(folder / part / "*"):
                    left.unlink()
                if (folder / part).exists():
                    sync_folder(folder / part)  # the last process may have died before it synced an entry
            yield ledger

    @classmethod
    def require_free(cls, folder: Path, name: str) -> None:
        """Raise `PipelineRunning` if a process runs the pipeline now. Writes nothing if it has never run."""
        if (folder / _LOCK).exists():
            with cls._locked(folder, name):
                pass

    @staticmethod
    def _locked(folder: Path, name: str) -> AbstractContextManager[None]:
        def refusal(owner: str) -> PipelineRunning:
            return PipelineRunning(
                f"the pipeline {name!r} already runs in process {owner}, with the checkpoint {folder}. Stop it first."
            )

        return process_lock(folder / _LOCK, refusal)

    @classmethod
    def read(cls, folder: Path, name: str) -> Ledger:
        """Open the ledger for reading, also while another process writes to it."""
        if not (folder / _IDENTITY).exists():
            raise PipelineError(f"{folder} is not a checkpoint yet: the pipeline {name!r} has not run.")
        ledger = cls(folder, name)
        ledger._identify()
        return ledger

    def _identify(self) -> None:
        """Read the checkpoint's identity, or create it; refuse another pipeline's folder or another format version."""
        path = self.folder / _IDENTITY
        if not path.exists():
            if any(self._batches.iterdir()):
                raise PipelineError(
                    f"{path} is missing, but {self._batches} has entries of an unknown pipeline. Restore the file, or "
                    "give the pipeline a new checkpoint folder."
                )
            replace_file(path, _to_json({"name": self.name, "format": FORMAT, "token": secrets.token_hex(4)}))
        found = _understood(path, dict)
        if found.get("format") != FORMAT:
            raise PipelineError(
                f"the checkpoint {self.folder} has format {found.get('format')!r}; this version reads {FORMAT}. Run "
                "the pipeline to its end with the version that wrote it, then give it a new checkpoint folder."
            )
        if found.get("name") != self.name:
            raise PipelineError(
                f"the checkpoint {self.folder} belongs to the pipeline {found.get('name')!r}, not to {self.name!r}. "
                "Give each pipeline its own folder."
            )
        self.token = _understood(path, lambda content: str(content["token"]))

    @property
    def writer(self) -> str:
        """Name under which this pipeline, with this checkpoint, changes relations."""
        return f"{self.name}/{self.token}"

    @property
    def updates_folder(self) -> Path:
        """Folder with the planned updates of relations, their messages and their rejected rows."""
        return self.folder / _UPDATES

    @property
    def last_plan(self) -> Plan | None:
        """Plan of the last batch, done or not."""
        number = max(self._entries("planned"), default=None)
        return None if number is None else self.plan(number)

    @property
    def open_plan(self) -> Plan | None:
        """Plan of the unfinished batch, if any."""
        last = self.last_plan
        return None if last is None or self.is_done(last.batch) else last

    @property
    def last_source_batch(self) -> int | None:
        """Last batch of the source that was planned, if the ledger still has its plan."""
        plans = (self.plan(number) for number in reversed(self._entries("planned")))
        return next((plan.source_batch for plan in plans if plan is not None and plan.source_batch is not None), None)

    def plan(self, batch: int) -> Plan | None:
        """Return the plan of a batch, or None if it has none."""
        return self._entry(batch, "planned", Plan)

    def plan_of(self, source_batch: int) -> Plan | None:
        """Return the plan of a batch of the source, or None if it is new.

        Raise `PipelineError` for an old batch that the ledger no longer has.
        """
        later = None
        for number in reversed(self._entries("planned")):
            plan = self.plan(number)
            if plan is None or plan.source_batch is None:
                continue
            if plan.source_batch == source_batch:
                return plan
            if plan.source_batch < source_batch:
                break
            later = plan
        if later is not None:
            raise PipelineError(
                f"batch {source_batch} of the source comes again, long after batch {later.source_batch}: its rows "
                f"would be added twice. Spark's part of the checkpoint {self.folder} is older than the ledger; restore "
                "both together."
            )
        return None

    def staged(self, batch: int) -> list[TaskResult]:
        """Return the results of a batch's completed phases before it was prepared."""
        phases: list[TaskResult] = []
        while (work := self._entry(batch, _phase(len(phases)), TaskResult)) is not None:
            phases.append(work)
        return phases

    def shed(self, batch: int) -> ShedPlan | None:
        """Return the shedding of a batch, or None if it joins all of its rows."""
        return self._entry(batch, "shed", ShedPlan)

    @property
    def archived(self) -> list[ArchivedBatch]:
        """Batches with shed rows that are not yet repaired, oldest first."""
        found = sorted((self.folder / _ARCHIVED).glob(f"{_NUMBER}.json"))
        return [_read(path, ArchivedBatch.from_json) for path in found]

    @property
    def learnt(self) -> dict[str, Any]:
        """Values that the last done batch recorded for later ones, such as measured service times."""
        last = self.last_done
        if last is None:
            return {}
        return _understood(self._path(last, "done"), lambda content: dict(content.get("learnt") or {}))

    def prepared(self, batch: int) -> BatchManifest | None:
        """Return the manifest of a batch, or None if it is not prepared."""
        return self._entry(batch, "prepared", BatchManifest)

    def manifests(self) -> list[BatchManifest]:
        """Return the manifests of the prepared batches that the ledger still has, oldest first."""
        return [found for number in self._entries("prepared") if (found := self.prepared(number)) is not None]

    def is_done(self, batch: int) -> bool:
        """True if all tables show the results of a batch."""
        return self._path(batch, "done").exists()

    @property
    def last_done(self) -> int | None:
        """Last batch whose results all tables show."""
        return max(self._entries("done"), default=None)

    @property
    def waiting(self) -> list[WaitingFile]:
        """Rows that wait after the last prepared batch."""
        number = max(self._entries("prepared"), default=None)
        if number is None:
            return []
        if self._last_prepared is None or self._last_prepared.batch != number:
            self._last_prepared = self.prepared(number)
        return [] if self._last_prepared is None else self._last_prepared.waiting

    def write_plan(self, plan: Plan) -> None:
        """Record the plan of a batch."""
        self._write(plan.batch, "planned", plan.to_json())

    def write_shed(self, batch: int, shed: ShedPlan) -> None:
        """Record which rows of a batch are shed."""
        self._write(batch, "shed", shed.to_json())

    def write_archived(self, archived: ArchivedBatch) -> None:
        """Record the rows of a batch left to repair; remove its entry if there are none."""
        folder = self.folder / _ARCHIVED
        make_folder(folder)
        path = folder / f"{archived.batch:012d}.json"
        reached("before archived")
        if archived.files:
            replace_file(path, archived.to_json())
        else:
            path.unlink(missing_ok=True)
            sync_folder(folder)  # if the entry came back, its rows would be repaired again
        reached("after archived")

    def write_staged(self, batch: int, phase: int, work: TaskResult) -> None:
        """Record the files that a phase wrote and the rows stalled in it."""
        self._write(batch, _phase(phase), work.to_json())

    def write_prepared(self, manifest: BatchManifest) -> None:
        """Record that all files of a batch are written."""
        self._write(manifest.batch, "prepared", manifest.to_json())
        self._last_prepared = manifest

    def write_done(self, batch: int, learnt: dict[str, Any] | None = None) -> None:
        """Record that all tables show a batch, with values ``learnt`` for later ones; drop entries of old batches."""
        content = {"batch": batch} if learnt is None else {"batch": batch, "learnt": learnt}
        self._write(batch, "done", _to_json(content))
        for path in self._batches.glob(f"{_NUMBER}.*.json"):
            if int(path.name.split(".")[0]) <= batch - _KEPT:
                path.unlink(missing_ok=True)

    def update(self, relation: str) -> tuple[int, dict[str, Any]] | None:
        """Return the number and content of the last update planned for a relation."""
        path = self.updates_folder / f"{relation}.json"
        if not path.exists():
            return None
        return _understood(path, lambda content: (int(content["number"]), dict(content["content"])))

    def write_update(self, relation: str, number: int, content: dict[str, Any]) -> None:
        """Record the number and content of an update of a relation."""
        reached("before update plan")
        replace_file(self.updates_folder / f"{relation}.json", _to_json({"number": number, "content": content}))
        reached("after update plan")

    def _entries(self, stage: str) -> list[int]:
        return sorted(int(path.name.split(".")[0]) for path in self._batches.glob(f"{_NUMBER}.{stage}.json"))

    def _path(self, batch: int, stage: str) -> Path:
        return self._batches / f"{batch:012d}.{stage}.json"

    def _entry(self, batch: int, stage: str, kind: type[EntryKind]) -> EntryKind | None:
        path = self._path(batch, stage)
        return _read(path, kind.from_json) if path.exists() else None

    def _write(self, batch: int, stage: str, content: bytes) -> None:
        reached(f"before {stage}")
        replace_file(self._path(batch, stage), content)
        reached(f"after {stage}")


def _phase(number: int) -> str:
    return f"staged-{number}"


def _to_json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def _understood(path: Path, read: Callable[[dict[str, Any]], Value]) -> Value:
    """Parse an entry without a class of its own with ``read``."""
    return _read(path, lambda content: read(_mapping(content)))


def _mapping(content: bytes) -> dict[str, Any]:
    found = json.loads(content)
    if not isinstance(found, dict):
        raise ValueError(f"it holds {type(found).__name__}, not an object")
    return found


def _read(path: Path, read: Callable[[bytes], Value]) -> Value:
    """Parse an entry with ``read``; refuse one that is torn, or has missing or wrong fields, as damaged."""
    with disk_errors(path, "read"):
        content = path.read_bytes()
    try:
        return read(content)
    except KeyError as error:
        fault = f"it lacks the field {error}"
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        fault = str(error)
    raise PipelineError(
        f"{path} is damaged ({fault}). Restore it from a copy, or give the pipeline a new checkpoint folder: it then "
        "reads its source from the beginning."
    )
