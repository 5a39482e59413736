"""Recorder: every change below a folder, in order, as the events of a `Disk`.

Changes of names and syncs are seen as they are made, through `os`. Before and after each, the folder is scanned, so
that the writes of pyarrow and of delta-rs, which go past Python, become events as well.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from tests.crash.disk import ROOT, Disk, Event, Slot

_MOVES, _REMOVALS = ("rename", "replace"), ("unlink", "remove", "rmdir")
_OTHERS = ("mkdir", "link", "symlink", "truncate", "ftruncate")
_SYNCS = ("fsync", "fdatasync")


class Recorder:
    """Record of what happens below the folder ``root``, which holds what programs see of ``disk``."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self.root = root
        self.events: list[Event] = []
        self.calls: list[tuple[str, str]] = []
        """Calls seen through `os`: name and path, relative to the folder."""
        self.paths: set[str] = set()
        """Paths seen by scans."""
        self._disk = disk.copy()
        self._lock = threading.RLock()
        self._inodes = {root.stat().st_ino: ROOT}
        self._seen: dict[int, tuple[int, int]] = {}  # size and time of change of each file
        self._next = 1 + max([ROOT, *disk.names, *disk.content])
        self._real = {name: getattr(os, name) for name in (*_MOVES, *_REMOVALS, *_OTHERS, *_SYNCS)}
        for path, inode in _paths(disk.names):
            status = (root / path).stat()
            self._inodes[status.st_ino] = inode
            if inode in disk.content:
                self._seen[inode] = (status.st_size, status.st_mtime_ns)

    def tell(self, fact: str) -> None:
        """Record a fact: all that happened before is behind it."""
        with self._lock:
            self._scan()
            self._record(Event("told", fact))

    @contextmanager
    def recording(self) -> Iterator[Recorder]:
        """Record what this process does within the context."""
        wrapped = {
            **dict.fromkeys(_MOVES, self._move),
            **dict.fromkeys(_REMOVALS, self._removal),
            **dict.fromkeys(_OTHERS, self._other),
            **dict.fromkeys(_SYNCS, self._sync),
        }
        with mock.patch.multiple(os, **{name: _through(wrap, self._real[name]) for name, wrap in wrapped.items()}):
            try:
                yield self
            finally:
                with self._lock:
                    self._scan()

    def _move(self, real: Any, source: Any, target: Any, **folders: Any) -> None:
        with self._lock:
            self._scan()
            real(source, target, **folders)
            before = self._path(source, folders.get("src_dir_fd"))
            after = self._path(target, folders.get("dst_dir_fd"))
            if before is not None and after is not None:
                self._move_name(before, after)

    def _move_name(self, before: str, after: str) -> None:
        self.calls.append(("rename", after))
        self.paths.add(after)
        old, new = self._slot(before), self._slot(after)
        moved = self._disk.names[old[0]][old[1]]
        self._record(Event("names", f"{before} -> {after}", slots=((old, None), (new, moved))))

    def _removal(self, real: Any, path: Any, **folders: Any) -> None:
        with self._lock:
            self._scan()
            real(path, **folders)
            name = self._path(path, folders.get("dir_fd"))
            if name is not None:
                self.calls.append(("unlink", name))
                self._record(Event("names", f"-{name}", slots=((self._slot(name), None),)))

    def _other(self, real: Any, *arguments: Any, **more: Any) -> Any:
        with self._lock:
            self._scan()
            result = real(*arguments, **more)
            self._scan()
        return result

    def _sync(self, _: Any, descriptor: int) -> None:
        with self._lock:
            self._scan()
            inode = self._inodes.get(os.fstat(descriptor).st_ino)
            if inode is not None:
                path = next((path for path, each in _paths(self._disk.names) if each == inode), ".")
                self.calls.append(("fsync", path))
                self._record(Event("sync", f"sync {path}", inode))

    def _scan(self) -> None:
        """Record what has changed since the last look."""
        found: dict[Slot, int] = {}
        folders = [(str(self.root), ROOT)]
        while folders:
            path, folder = folders.pop()
            try:
                entries = sorted(os.scandir(path), key=lambda entry: entry.name)
            except FileNotFoundError:
                continue
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                inode = self._inodes.get(status.st_ino)
                is_folder = entry.is_dir(follow_symlinks=False)
                if inode is None:
                    inode = self._inodes[status.st_ino] = self._next
                    self._next += 1
                    if is_folder:
                        self._record(Event("folder", "", inode))
                found[folder, entry.name] = inode
                self.paths.add(str(Path(entry).relative_to(self.root)))
                if is_folder:
                    folders.append((entry.path, inode))
                elif self._seen.get(inode) != (status.st_size, status.st_mtime_ns):
                    self._seen[inode] = (status.st_size, status.st_mtime_ns)
                    content = Path(entry).read_bytes()
                    if content != self._disk.content.get(inode):
                        said = f"write {Path(entry).relative_to(self.root)}"
                        self._record(Event("bytes", said, inode, content))
        self._compare(found)

    def _compare(self, found: dict[Slot, int]) -> None:
        """Record the names that were made, moved or removed past Python."""
        known = {(folder, name): inode for folder, names in self._disk.names.items() for name, inode in names.items()}
        gone = {slot: inode for slot, inode in known.items() if slot not in found}
        for slot, inode in sorted(found.items()):
            if known.get(slot) != inode:
                moved = [old for old, each in gone.items() if each == inode]
                self._record(Event("names", f"+{slot[1]}", slots=(*((old, None) for old in moved[:1]), (slot, inode))))
                for old in moved[:1]:
                    del gone[old]
        for slot in gone:
            self._record(Event("names", f"-{slot[1]}", slots=((slot, None),)))

    def _record(self, event: Event) -> None:
        self.events.append(event)
        were = [self._disk.names[folder].get(name) for (folder, name), _ in event.slots]
        self._disk.apply(event)
        held = {inode for names in self._disk.names.values() for inode in names.values()} if were else set()
        for number, inode in list(self._inodes.items()):  # the number of a removed file may be given to another one
            if inode in were and inode not in held:
                del self._inodes[number]

    def _path(self, path: Any, folder: int | None) -> str | None:
        """Return a path relative to the root; None if it is elsewhere."""
        above = Path.cwd() if folder is None else Path(f"/proc/self/fd/{folder}").readlink()
        whole = Path(os.path.normpath(above / os.fsdecode(path)))
        return str(whole.relative_to(self.root)) if whole.is_relative_to(self.root) else None

    def _slot(self, path: str) -> Slot:
        *above, name = path.split("/")
        folder = ROOT
        for part in above:
            folder = self._disk.names[folder][part]
        return folder, name


def _through(wrap: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **more: wrap(real, *arguments, **more)


def _paths(names: dict[int, dict[str, int]], folder: int = ROOT, above: str = "") -> Iterator[tuple[str, int]]:
    for name, inode in names[folder].items():
        yield above + name, inode
        if inode in names:
            yield from _paths(names, inode, f"{above}{name}/")
