"""Arrivals: order files that arrive in a folder at fixed times, whether or not anybody keeps up with them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread


class Arrivals:
    """Copies files into a folder, one by one; their modification time is that of their arrival."""

    def __init__(self, files: Sequence[Path], folder: Path, every_s: float) -> None:
        self._files, self._folder, self._every_s = files, folder, every_s
        self._ended = Event()
        self._thread: Thread | None = None
        self.at: dict[str, float] = {}
        """Time of arrival, by file name."""
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, number: int) -> None:
        """Let a file arrive now, as a whole."""
        file = self._files[number]
        hidden = self._folder / f"_{file.name}"
        shutil.copyfile(file, hidden)
        self.at[file.name] = now = time.time()
        os.utime(hidden, (now, now))
        hidden.rename(self._folder / file.name)

    def start(self, first: int) -> None:
        """Let all files from a number on arrive, at equal intervals, in a thread."""
        self._thread = Thread(target=self._put_all, args=(first,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let no more files arrive."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _put_all(self, first: int) -> None:
        begun = time.monotonic()
        for turn, number in enumerate(range(first, len(self._files))):
            if self._ended.wait(max(begun + turn * self._every_s - time.monotonic(), 0)):
                return
            self.put(number)
