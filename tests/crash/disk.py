"""Disk: what a power cut may leave of files and folders, given the writes and syncs before it.

The rules are those of POSIX on a disk that promises nothing more, as in ALICE (OSDI '14):

- the bytes of a file are durable once the file is synced, its name once its folder is: neither implies the other;
- until then, the bytes may be gone, zeros, or cut off, whatever became of files written earlier or later;
- until its folder is synced, a name that was made, moved or removed may be there or not, whatever became of others;
- each single change of a name happens whole or not at all; a move within or between folders is one change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from random import Random

ROOT = 0
Slot = tuple[int, str]
"""A folder's inode and a name in it."""
Bytes = tuple[int, bytes]
"""Number of the inode, and its bytes."""

_ALL_BELOW = 32  # combinations at one point, up to which all of them are states
_DRAWS = 8  # states of a point with more, besides the corners


@dataclass(frozen=True)
class Event:
    """A change of the disk, or a fact that the writer tells.

    ``kind`` is one of these: *folder* (a new inode of a folder), *bytes* (all bytes of a file), *names* (``slots``
    point to other inodes, or none), *sync* (of a file or a folder), *told*.
    """

    kind: str
    said: str
    inode: int = 0
    content: bytes = b""
    slots: tuple[tuple[Slot, int | None], ...] = ()


@dataclass(frozen=True)
class State:
    """What is left after a power cut: the bytes of each file by its path, None for a folder; and how it came about."""

    tree: dict[str, bytes | None]
    said: str

    @property
    def digest(self) -> bytes:
        """Equal for equal trees."""
        digest = hashlib.blake2b(digest_size=16)
        for path, content in sorted(self.tree.items()):
            digest.update(f"{path}\0{-1 if content is None else len(content)}\0".encode())
            digest.update(content or b"")
        return digest.digest()


@dataclass
class Disk:
    """Names and bytes as programs see them, those that are durable, and the changes in between."""

    names: dict[int, dict[str, int]] = field(default_factory=lambda: {ROOT: {}})
    durable: dict[int, dict[str, int]] = field(default_factory=lambda: {ROOT: {}})
    content: dict[int, bytes] = field(default_factory=dict)
    synced: dict[int, bytes | None] = field(default_factory=dict)  # None: never
    pending: list[Event] = field(default_factory=list)  # changes of names

    def copy(self) -> Disk:
        """Return a disk that changes on its own."""
        return Disk(
            {inode: dict(names) for inode, names in self.names.items()},
            {inode: dict(names) for inode, names in self.durable.items()},
            dict(self.content),
            dict(self.synced),
            list(self.pending),
        )

    @classmethod
    def holding(cls, tree: dict[str, bytes | None]) -> Disk:
        """Return a disk with a tree that is durable as a whole."""
        disk, folders = cls(), {"": ROOT}
        for inode, (path, content) in enumerate(sorted(tree.items()), 1):
            above, _, name = path.rpartition("/")
            disk.names[folders[above]][name] = disk.durable[folders[above]][name] = inode
            if content is None:
                folders[path] = inode
                disk.names[inode], disk.durable[inode] = {}, {}
            else:
                disk.content[inode] = disk.synced[inode] = content
        return disk

    def apply(self, event: Event) -> None:
        """Change the disk."""
        match event.kind:
            case "folder":
                self.names[event.inode], self.durable[event.inode] = {}, {}
            case "bytes":
                self.content[event.inode] = event.content
                self.synced.setdefault(event.inode, None)
            case "names":
                _set(self.names, event.slots)
                self.pending.append(event)
            case "sync" if event.inode in self.names:
                self._sync_folder(event.inode)
            case "sync":
                self.synced[event.inode] = self.content[event.inode]

    def _sync_folder(self, folder: int) -> None:
        """Make the changes of a folder's names durable; what was moved out of it is durable where it went."""
        left: list[Event] = []
        final: set[Slot] = set()  # by a later change: an earlier one must not come after it
        for event in reversed(self.pending):
            removed = any(slot[0] == folder and inode is None for slot, inode in event.slots)
            now = [each for each in event.slots if each[0][0] == folder or removed]
            later = tuple(each for each in event.slots if each not in now and each[0] not in final)
            _set(self.durable, [each for each in now if each[0] not in final])
            final.update(slot for slot, _ in now)
            if later:
                left.append(Event("names", event.said, slots=later))
        self.pending = left[::-1]

    @property
    def tree(self) -> dict[str, bytes | None]:
        """What programs see."""
        return self._walk(self.names, self.content)

    @property
    def certain(self) -> dict[str, bytes | None]:
        """What a power cut leaves if it takes everything that is not durable."""
        return self._walk(self.durable, {inode: content or b"" for inode, content in self.synced.items()})

    def states(self, random: Random) -> Iterator[State]:
        """Yield states that a power cut may leave now: all if they are few, else the corners and some others.

        In the first one, everything is lost that is not durable.
        """
        yield State(self.certain, "undone: all that is not durable")
        loose = {inode: kinds for inode in self.content if (kinds := self._kinds(inode, random))}
        everything, full = (True,) * len(self.pending), dict.fromkeys(loose, "whole")
        choices = 2 ** min(len(self.pending), 20)
        for kinds in loose.values():
            choices *= len(kinds)
        if choices <= _ALL_BELOW:
            for kept in product((True, False), repeat=len(self.pending)):
                for each in product(*loose.values()):
                    yield self._state(kept, dict(zip(loose, each, strict=True)), loose)
            return
        for inverted in (False, True):
            yield self._state(tuple(not inverted for _ in everything), full, loose)
            for one in range(len(self.pending)):
                yield self._state(tuple((i == one) == inverted for i in range(len(self.pending))), full, loose)
        for inode, kinds in loose.items():
            for kind in kinds:
                if kind != "whole":
                    yield self._state(everything, {**full, inode: kind}, loose)
        for _ in range(_DRAWS):
            share = random.choice((0.2, 0.5, 0.8))
            kept = tuple(random.random() < share for _ in self.pending)
            yield self._state(kept, {inode: random.choice(list(kinds)) for inode, kinds in loose.items()}, loose)

    def _kinds(self, inode: int, random: Random) -> dict[str, bytes]:
        """Return the bytes that a file may be left with, by what happened to it; nothing if it is synced."""
        now, before = self.content[inode], self.synced[inode]
        if now == before:
            return {}
        begin = len(before) if before is not None and now.startswith(before) else 0
        cut = random.randint(begin, max(len(now) - 1, begin))
        kinds = {"whole": now, "zeros": now[:begin] + bytes(len(now) - begin), "cut": now[:cut]}
        kinds["cut, then zeros"] = now[:cut] + bytes(len(now) - cut)
        kinds["lost"] = before or b""
        distinct: dict[str, bytes] = {}
        for kind, content in kinds.items():
            if content not in distinct.values():
                distinct[kind] = content
        return distinct

    def _state(self, kept: tuple[bool, ...], of: dict[int, str], loose: dict[int, dict[str, bytes]]) -> State:
        names = {inode: dict(held) for inode, held in self.durable.items()}
        for event, is_kept in zip(self.pending, kept, strict=True):
            if is_kept:
                _set(names, event.slots)
        content = {**self.content, **{inode: loose[inode][kind] for inode, kind in of.items()}}
        paths: dict[int, str] = {}
        tree = self._walk(names, content, paths)
        lost = [event.said for event, is_kept in zip(self.pending, kept, strict=True) if not is_kept]
        torn = [f"{paths[inode]}: {kind}" for inode, kind in of.items() if kind != "whole" and inode in paths]
        return State(tree, f"undone: {', '.join(lost) or 'nothing'}; bytes: {', '.join(torn) or 'all there'}")

    def _walk(
        self, names: dict[int, dict[str, int]], content: dict[int, bytes], paths: dict[int, str] | None = None
    ) -> dict[str, bytes | None]:
        tree: dict[str, bytes | None] = {}
        folders = [("", ROOT)]
        while folders:
            above, folder = folders.pop()
            for name, inode in names[folder].items():
                path = f"{above}/{name}" if above else name
                if paths is not None:
                    paths[inode] = path
                if inode in names:
                    tree[path] = None
                    folders.append((path, inode))
                else:
                    tree[path] = content[inode]
        return tree


def _set(names: dict[int, dict[str, int]], slots: object) -> None:
    for (folder, name), inode in slots:
        if inode is None:
            names[folder].pop(name, None)
        else:
            names[folder][name] = inode
