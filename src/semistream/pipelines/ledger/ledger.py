"""Ledger: what a pipeline has decided, prepared and finished for each batch, so that a restart goes on from there."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from semistream.errors import PipelineError, PipelineRunning
from semistream.pipelines.ledger.entries import ArchivedBatch, BatchManifest, Plan, ShedPlan, TaskResult, WaitingFile
from semistream.pipelines.ledger.faults import reached
from semistream.storage.local_files import leftovers, replace_file
from semistream.storage.locks import process_lock

FORMAT = 1
Entry = TypeVar("Entry")
_IDENTITY, _LOCK, _BATCHES, _UPDATES, _ARCHIVED = "pipeline.json", "lock", "batches", "updates", "archived"
_KEPT = 100  # batches that are done, of which the entries are kept: Spark keeps as many of its own


class Ledger:
    """The ledger of one pipeline in its checkpoint folder: an entry for each batch and stage, each a file of its own.

    The ``token`` was drawn when the checkpoint was made, and tells it from others of the same pipeline.

    A batch is *planned*; *shed*, if it has more rows than there is time for and it was decided which go on; *staged*,
    once for each decision that all of it has to be known for, when the rows that do not need one are written;
    *prepared*, when all its files are written; and *done* when all its tables show them. Entries are written to a
    temporary name, synced and renamed, so each is there whole or not at all. What is prepared is never done again, only
    committed; and what is done is not touched. Batches come one after the other: at most the last one is not done.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.token = ""
        self._batches = folder / _BATCHES
        self._last_prepared: BatchManifest | None = None  # as it was read, or written

    @classmethod
    @contextmanager
    def open(cls, folder: Path, name: str) -> Iterator[Ledger]:
        """The ledger, for one process at a time; it is made if there is none."""
        try:
            for part in (_BATCHES, _UPDATES):
                (folder / part).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PipelineError(
                f"the checkpoint {folder} cannot be made: {error.strerror}. Give a folder that can be written."
            ) from error

        def refusal(owner: str) -> PipelineRunning:
            return PipelineRunning(
                f"the pipeline {name!r} is already run by process {owner}, with the checkpoint {folder}. Stop it first."
            )

        with process_lock(folder / _LOCK, refusal):
            ledger = cls(folder, name)
            ledger._identify()
            for part in (_BATCHES, _UPDATES, _ARCHIVED):
                for left in leftovers(folder / part / "*"):
                    left.unlink()
            yield ledger

    @classmethod
    def read(cls, folder: Path, name: str) -> Ledger:
        """The ledger to look at, also while another process goes on with it."""
        if not (folder / _IDENTITY).exists():
            raise PipelineError(f"{folder} is not a checkpoint yet: the pipeline {name!r} has not run.")
        ledger = cls(folder, name)
        ledger._identify()
        return ledger

    def _identify(self) -> None:
        """Refuse a folder that belongs to another pipeline or another version of the format."""
        path = self.folder / _IDENTITY
        if not path.exists():
            if any(self._batches.iterdir()):
                raise PipelineError(
                    f"{path} is missing, but {self._batches} has entries: it is not known whose they are. Restore it, "
                    "or give the pipeline a new checkpoint folder."
                )
            replace_file(path, _to_json({"name": self.name, "format": FORMAT, "token": secrets.token_hex(4)}))
        found = _from_json(path)
        if found.get("format") != FORMAT:
            raise PipelineError(
                f"the checkpoint {self.folder} has format {found.get('format')!r}; this version reads {FORMAT}. Run "
                "the version that wrote it to its end, then give the pipeline a new checkpoint folder."
            )
        if found.get("name") != self.name:
            raise PipelineError(
                f"the checkpoint {self.folder} belongs to the pipeline {found.get('name')!r}, not to {self.name!r}. "
                "Give each pipeline a folder of its own."
            )
        self.token = _understood(path, lambda content: str(content["token"]))

    @property
    def updates_folder(self) -> Path:
        """Where updates of relations are remembered, and what they are made of."""
        return self.folder / _UPDATES

    @property
    def last_plan(self) -> Plan | None:
        """The plan of the last batch, be it done or not."""
        number = max(self._entries("planned"), default=None)
        return None if number is None else self.plan(number)

    @property
    def open_plan(self) -> Plan | None:
        """The plan of the batch that is not done, if there is one."""
        last = self.last_plan
        return None if last is None or self.is_done(last.batch) else last

    def plan(self, batch: int) -> Plan | None:
        """What was decided for a batch, if it was."""
        return self._entry(batch, "planned", Plan.from_json)

    def plan_of(self, source_batch: int) -> Plan | None:
        """What was decided for a batch of the source, if it was; one of long ago, that is forgotten, is refused."""
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
                f"would be doubled. Spark's part of the checkpoint {self.folder} is older than the ledger; restore "
                "both together."
            )
        return None

    def staged(self, batch: int) -> list[TaskResult]:
        """The phases of a batch that were worked through before it was prepared."""
        phases: list[TaskResult] = []
        while (work := self._entry(batch, _phase(len(phases)), TaskResult.from_json)) is not None:
            phases.append(work)
        return phases

    def shed(self, batch: int) -> ShedPlan | None:
        """Which rows of a batch are shed, if it was decided that some are."""
        return self._entry(batch, "shed", ShedPlan.from_json)

    @property
    def archived(self) -> list[ArchivedBatch]:
        """What batches have shed and is not repaired, the first at the beginning."""
        found = sorted((self.folder / _ARCHIVED).glob("[0-9]*.json"))
        return [_understood(path, ArchivedBatch.from_json) for path in found]

    @property
    def learnt(self) -> dict[str, Any]:
        """What the last batch that was done has left for those to come."""
        last = self.last_done
        found = None if last is None else self._entry(last, "done", lambda content: dict(content.get("learnt", {})))
        return found or {}

    def prepared(self, batch: int) -> BatchManifest | None:
        """What the work for a batch came to, if it was done."""
        return self._entry(batch, "prepared", BatchManifest.from_json)

    def is_done(self, batch: int) -> bool:
        """Whether all tables show the results of a batch."""
        return self._path(batch, "done").exists()

    @property
    def last_done(self) -> int | None:
        """The last batch whose results all tables show."""
        return max(self._entries("done"), default=None)

    @property
    def waiting(self) -> list[WaitingFile]:
        """The rows that wait after the last batch that was prepared."""
        number = max(self._entries("prepared"), default=None)
        if number is None:
            return []
        if self._last_prepared is None or self._last_prepared.batch != number:
            self._last_prepared = self.prepared(number)
        return [] if self._last_prepared is None else self._last_prepared.waiting

    def write_plan(self, plan: Plan) -> None:
        """Remember what was decided."""
        self._write(plan.batch, "planned", asdict(plan))

    def write_shed(self, batch: int, shed: ShedPlan) -> None:
        """Remember which rows are shed."""
        self._write(batch, "shed", asdict(shed))

    def write_archived(self, archived: ArchivedBatch) -> None:
        """Remember what is left to be repaired of a batch, or that nothing is."""
        folder = self.folder / _ARCHIVED
        folder.mkdir(exist_ok=True)
        path = folder / f"{archived.batch:012d}.json"
        reached("before archived")
        if archived.files:
            replace_file(path, _to_json(asdict(archived)))
        else:
            path.unlink(missing_ok=True)
        reached("after archived")

    def write_staged(self, batch: int, phase: int, work: TaskResult) -> None:
        """Remember what was written in a phase, and which rows wait for a decision."""
        self._write(batch, _phase(phase), work.to_json())

    def write_prepared(self, manifest: BatchManifest) -> None:
        """Remember what was written."""
        self._write(manifest.batch, "prepared", asdict(manifest))
        self._last_prepared = manifest

    def write_done(self, batch: int, learnt: dict[str, Any] | None = None) -> None:
        """Remember that all tables show it, and what was learnt for later ones; forget batches of long ago."""
        self._write(batch, "done", {"batch": batch} if learnt is None else {"batch": batch, "learnt": learnt})
        for path in self._batches.glob("[0-9]*.json"):
            if int(path.name.split(".")[0]) <= batch - _KEPT:
                path.unlink(missing_ok=True)

    def update(self, relation: str) -> tuple[int, dict[str, Any]] | None:
        """The last update that was decided for a relation: its number and what it is made of."""
        path = self.updates_folder / f"{relation}.json"
        if not path.exists():
            return None
        return _understood(path, lambda content: (int(content["number"]), dict(content["content"])))

    def write_update(self, relation: str, number: int, content: dict[str, Any]) -> None:
        """Remember what an update of a relation is made of."""
        reached("before update plan")
        replace_file(self.updates_folder / f"{relation}.json", _to_json({"number": number, "content": content}))
        reached("after update plan")

    def _entries(self, stage: str) -> list[int]:
        return sorted(int(path.name.split(".")[0]) for path in self._batches.glob(f"[0-9]*.{stage}.json"))

    def _path(self, batch: int, stage: str) -> Path:
        return self._batches / f"{batch:012d}.{stage}.json"

    def _entry(self, batch: int, stage: str, read: Callable[[dict[str, Any]], Entry]) -> Entry | None:
        path = self._path(batch, stage)
        return _understood(path, read) if path.exists() else None

    def _write(self, batch: int, stage: str, content: dict[str, Any]) -> None:
        reached(f"before {stage}")
        replace_file(self._path(batch, stage), _to_json(content))
        reached(f"after {stage}")


def _phase(number: int) -> str:
    return f"staged-{number}"


def _to_json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def _understood(path: Path, read: Callable[[dict[str, Any]], Entry]) -> Entry:
    """What is made of an entry, unless that is not what an entry holds."""
    try:
        return read(_from_json(path))
    except (KeyError, TypeError, AttributeError) as error:
        raise PipelineError(
            f"{path} is damaged: it does not hold what an entry holds ({error!r}). Restore it from a copy, or give the "
            "pipeline a new checkpoint folder: it then reads its source from the beginning."
        ) from error


def _from_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise PipelineError(
            f"{path} is damaged ({error}). Restore it from a copy, or give the pipeline a new checkpoint folder: it "
            "then reads its source from the beginning."
        ) from error
    if not isinstance(content, dict):
        raise PipelineError(f"{path} is damaged: it holds {content!r}. Restore it from a copy.")
    return content
