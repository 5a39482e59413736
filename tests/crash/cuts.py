"""Cut the power of a scenario at any point, also during recovery, and check what it leaves."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import traceback
import uuid
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol
from unittest import mock

from tests.crash.disk import Disk, Event, State
from tests.crash.recorder import Recorder

Tell = Callable[[str], None]
_AGAIN = 12  # states from one recovery


class Scenario(Protocol):
    """A program that writes, and what must hold after a power cut."""

    name: str
    disk: Disk
    """What is there before it runs."""

    def run(self, folder: Path, tell: Tell) -> None:
        """Write to the folder; tell each fact that holds for ever once it is told."""

    def check(self, folder: Path, told: Sequence[str], tell: Tell) -> None:
        """Recover, raise `AssertionError` unless all that was ``told`` holds, and go on as `run` does."""


@dataclass(frozen=True)
class Cut:
    """A power cut: the state that it leaves, and what the program had told.

    The ``name`` says how to find it again: after which event, and which of the states; once more for each recovery.
    """

    name: str
    state: State
    told: tuple[str, ...]
    after: str


@dataclass(frozen=True)
class Failure:
    """A state that was not recovered from."""

    cut: Cut
    seed: int
    error: Exception

    def __str__(self) -> str:
        lines = "".join(traceback.format_exception(self.error))
        told = ", ".join(self.cut.told) or "nothing"
        return (
            f"{self.cut.name} (seed {self.seed}), after {self.cut.after or 'nothing'}\n  told: {told}\n"
            f"  {self.cut.state.said}\n{lines}"
        )


def failures(scenario: Scenario, seed: int, states: int) -> Iterator[Failure | None]:
    """Check ``states`` power cuts of a scenario, or all of one run if they are fewer; yield what came of each."""
    for cut in drawn_cuts(scenario, seed, states):
        yield check(scenario, cut, seed)


def drawn_cuts(scenario: Scenario, seed: int, states: int) -> Iterator[Cut]:
    """Yield about ``states`` cuts: half of them during the run, the others during a recovery.

    A recovery follows a cut, or the kill of the process, which loses nothing but leaves the same unsynced.
    """
    random = Random(f"{seed}/{scenario.name}")
    events = record(scenario.run, scenario.disk, scenario.name)
    first = list(_drawn(scenario.name, events, scenario.disk, [], seed, (states + 1) // 2, random))
    random.shuffle(first)
    yield from first
    moves = [point for point, event in enumerate(events, 1) if event.kind == "names"] or [0]
    left = states - (states + 1) // 2
    while left > 0:
        if random.random() < 0.5:
            point = random.choice(moves)
            name, before, told = f"{scenario.name}@{point}.killed", *after(events[:point], scenario.disk)
        else:
            cut = random.choice(first)
            name, before, told = cut.name, Disk.holding(cut.state.tree), cut.told
        yield from _drawn(name, recovery(scenario, before, told, name), before, told, seed, min(_AGAIN, left), random)
        left -= _AGAIN


def _drawn(
    name: str, events: Sequence[Event], disk: Disk, told: Sequence[str], seed: int, states: int, random: Random
) -> Iterator[Cut]:
    """Yield cuts at random points of a recorded run, in the order of the points."""
    points = set(random.choices(range(len(events) + 1), k=states))
    seen: set[tuple[bytes, int]] = set()
    for cut_states in _points(name, events, disk, told, seed, points):
        first = cut_states[:1] if random.random() < 0.5 else []
        for cut in first + random.sample(cut_states, min(-(-states // len(points)), len(cut_states)) - len(first)):
            if len(seen) < states and (known := (cut.state.digest, len(cut.told))) not in seen:
                seen.add(known)
                yield cut


def find(scenario: Scenario, name: str, seed: int) -> Cut:
    """Return a cut again by its name."""
    steps = name.split("@")[1:]
    disk, told, events = scenario.disk, tuple[str, ...](), record(scenario.run, scenario.disk, scenario.name)
    name = scenario.name
    for number, step in enumerate(steps, 1):
        point, _, which = step.partition(".")
        if which == "killed":
            events = events[: int(point)]
            more, facts = after(events, disk)
            name, disk, told = f"{name}@{step}", more, (*told, *facts)
        else:
            (states,) = _points(name, events, disk, told, seed, {int(point)})
            found = states[int(which)]
            if number == len(steps):
                return found
            name, disk, told = found.name, Disk.holding(found.state.tree), found.told
        events = recovery(scenario, disk, told, name)
    raise LookupError(name)


def check(scenario: Scenario, cut: Cut, seed: int) -> Failure | None:
    """Recover from a cut; return the failure, if any."""
    with scratch() as above, mock.patch.object(os, "fsync", os.fstat):
        lay_out(cut.state.tree, above / "disk")
        try:
            scenario.check(above / "disk", cut.told, lambda fact: None)
        except Exception as error:  # whatever it is, it is told
            return Failure(cut, seed, error)
    return None


def record(program: Callable[[Path, Tell], None], disk: Disk, name: str) -> list[Event]:
    """Run a program on a disk, and return what it did. Random names of files are the same for the same ``name``."""
    with scratch() as above, _known_names(Random(name)):
        folder = above / "disk"
        lay_out(disk.tree, folder)
        with Recorder(folder, disk).recording() as recorder:
            program(folder, recorder.tell)
        return recorder.events


@contextmanager
def _known_names(random: Random) -> Iterator[None]:
    with (
        mock.patch.object(secrets, "token_hex", lambda size: random.randbytes(size).hex()),
        mock.patch.object(uuid, "uuid4", side_effect=lambda: uuid.UUID(int=random.getrandbits(128))),
    ):
        yield


def recovery(scenario: Scenario, disk: Disk, told: Sequence[str], name: str) -> list[Event]:
    """Return what the recovery from a state of a disk does; nothing if it fails, as that state's own check says."""
    try:
        return record(lambda folder, tell: scenario.check(folder, told, tell), disk, name)
    except Exception:
        return []


def cuts(name: str, events: Sequence[Event], disk: Disk, told: Sequence[str], seed: int) -> Iterator[Cut]:
    """Yield the distinct power cuts during a recorded run, from the first event to the last."""
    seen: set[tuple[bytes, int]] = set()
    for states in _points(name, events, disk, told, seed):
        for cut in states:
            if (known := (cut.state.digest, len(cut.told))) not in seen:
                seen.add(known)
                yield cut


def _points(
    name: str,
    events: Sequence[Event],
    disk: Disk,
    told: Sequence[str],
    seed: int,
    wanted: Container[int] | None = None,
) -> Iterator[list[Cut]]:
    """Yield the cuts at each of the ``wanted`` points of a recorded run; at point 0, nothing has happened."""
    disk, facts = disk.copy(), list(told)
    for point, event in enumerate([Event("told", ""), *events]):
        disk.apply(event)
        if event.kind == "told" and event.said:
            facts.append(event.said)
        if wanted is None or point in wanted:
            states = disk.states(Random(f"{seed}/{name}/{point}"))
            yield [
                Cut(f"{name}@{point}.{number}", state, tuple(facts), event.said) for number, state in enumerate(states)
            ]


def after(events: Sequence[Event], disk: Disk | None = None) -> tuple[Disk, tuple[str, ...]]:
    """Return a disk after events, and what they told."""
    disk = (disk or Disk()).copy()
    for event in events:
        disk.apply(event)
    return disk, tuple(event.said for event in events if event.kind == "told")


@contextmanager
def scratch() -> Iterator[Path]:
    """Make an empty folder, in memory where possible; always of the same path, since files have it in them."""
    memory = Path("/dev/shm")
    base = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir()).resolve()
    folder = base / f"semistream-crash-{os.getpid()}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def read_tree(folder: Path) -> dict[str, bytes | None]:
    """Return a tree as it is."""
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
    }


def lay_out(tree: dict[str, bytes | None], folder: Path) -> None:
    """Write a tree into a new folder."""
    folder.mkdir()
    for path, content in sorted(tree.items()):
        if content is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(content)
