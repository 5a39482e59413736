"""Folders with compiled kernels: those that the package brings, and one to which this machine adds its own."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from filelock import FileLock, Timeout

from semistream.kernels.compiler.user_cache import user_cache

logger = logging.getLogger("semistream.kernels.compiler")

FOLDER_VARIABLE = "SEMISTREAM_KERNELS"
"""Environment variable with the folder for compiled kernels, in place of the user's cache folder."""

SENT = "semistream-kernels.zip"
"""Folder of compiled kernels on Python's path, in which Spark unpacks what a driver has sent. It is only read."""

_DIGEST_BYTES = 32
_LOCKS = "locks"  # subfolder
_UNMAPPED = 65534  # how a container shows owners that are not its own, such as the root of its host
_LONGEST_WAIT_S = 120.0  # for another process that compiles the same kernel


class KernelStore:
    """Files of machine code by name, each written once and as a whole; a damaged file is not there.

    The package's own folder comes first and is only read. New files go to the folder named by ``SEMISTREAM_KERNELS``,
    else to the user's cache folder, else, where neither can be written, to a private temporary folder.
    """

    def __init__(self) -> None:
        self.shipped = Path(__file__).with_name("objects")

    @cached_property
    def folder(self) -> Path:
        """The folder to which new code is written."""
        wanted = self._named_folder()
        if wanted is not None and _is_writable(wanted):
            return wanted
        user = os.getuid() if hasattr(os, "getuid") else "user"
        own = user_cache()
        cache = None if own is None else own / "kernels"
        private = Path(tempfile.gettempdir()) / f"semistream-{user}" / "kernels"
        for folder in (cache, private):
            if folder is not None and _is_writable(folder) and _is_private(folder):
                break
        else:
            folder = Path(tempfile.mkdtemp(prefix="semistream-"))
        if os.environ.get(FOLDER_VARIABLE) or folder != cache:
            logger.warning(
                "%s is not this user's own folder; compiled kernels are kept in %s. Set %s to one that is.",
                os.environ.get(FOLDER_VARIABLE) or cache or "the user's cache folder",
                folder,
                FOLDER_VARIABLE,
            )
        return folder

    @cached_property
    def _sent(self) -> list[Path]:
        return [folder for entry in sys.path if (folder := Path(entry) / SENT).is_dir()]

    def has(self, name: str) -> bool:
        """Return True if there is a file of this name."""
        return any((folder / name).exists() for folder in self._folders())

    def read(self, name: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield header and code of each file of this name that is not damaged."""
        for folder in self._folders():
            try:
                content = (folder / name).read_bytes()
            except OSError:
                continue
            digest, content = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
            if hashlib.sha256(content).digest() == digest:
                header, _, code = content.partition(b"\n")
                yield header, code

    def _folders(self) -> Iterator[Path]:
        """The folders to look into; one that the user names is trusted, even where it cannot be written."""
        yield self.shipped
        if (wanted := self._named_folder()) is not None:
            yield wanted
        yield from self._sent
        yield self.folder

    @staticmethod
    def _named_folder() -> Path | None:
        """The folder that the user names, unless every user could put code into it."""
        wanted = os.environ.get(FOLDER_VARIABLE)
        return None if not wanted or _is_open_to_all(Path(wanted)) else Path(wanted)

    def names(self) -> Iterator[str]:
        """Yield the names of all files."""
        for folder in self._folders():
            yield from self.names_in(folder)

    @staticmethod
    def names_in(folder: Path) -> Iterator[str]:
        """Yield the names of the files in a folder."""
        yield from (f"{file.parent.name}/{file.name}" for file in folder.glob("*/*") if file.parent.name != _LOCKS)

    def write(self, name: str, header: bytes, code: bytes) -> None:
        """Write a file as a whole. A full disk is no error: the code is compiled again next time."""
        target, content = self.folder / name, header + b"\n" + code
        try:
            target.parent.mkdir(exist_ok=True, mode=0o700)
            descriptor, temporary = tempfile.mkstemp(dir=target.parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(hashlib.sha256(content).digest() + content)
                Path(temporary).replace(target)
            except OSError:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as error:
            logger.warning("a compiled kernel could not be kept in %s: %s", target.parent, error)

    @contextmanager
    def lock(self, name: str) -> Iterator[bool]:
        """Hold the lock of a name; yield True if another process had it. After two minutes, go on without it."""
        try:
            (self.folder / _LOCKS).mkdir(exist_ok=True, mode=0o700)
            lock = FileLock(self.folder / _LOCKS / name, thread_local=False)
        except OSError:
            yield False
            return
        waited = False
        try:
            try:
                lock.acquire(timeout=0)
            except Timeout:
                waited = True
                lock.acquire(timeout=_LONGEST_WAIT_S)
        except (OSError, Timeout):
            yield waited
            return
        try:
            yield waited
        finally:
            lock.release()


def _is_writable(folder: Path) -> bool:
    """Make a folder; return True if files can be written to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _is_private(folder: Path) -> bool:
    """Return True if nobody but this user and root can put files, which will be run, into a folder.

    Nobody else may own or write to it, nor replace it or a folder above it. The group may own folders above: on many
    systems it is the user's own.
    """
    if not hasattr(os, "getuid"):
        return True
    found, *above = [part.stat() for part in (folder.resolve(), *folder.resolve().parents)]
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return False
    return all(
        part.st_uid in (0, os.getuid(), _UNMAPPED)
        and (not part.st_mode & stat.S_IWOTH or bool(part.st_mode & stat.S_ISVTX))
        for part in above
    )


def _is_open_to_all(folder: Path) -> bool:
    """Return True if every user can write to a folder."""
    try:
        return bool(folder.stat().st_mode & stat.S_IWOTH)
    except OSError:
        return False


STORE = KernelStore()
