"""VersionPins: the versions of relations that a pipeline's batch needs, kept from any vacuum."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from semistream.errors import StorageError
from semistream.pipelines.ledger.ledger import Ledger
from semistream.relation.format.pins import Pin, remove_pin, write_pin

_LOG = logging.getLogger(__name__)
_RENEWED_S = 86_400.0


class VersionPins:
    """Pins of one pipeline in the folders of its relations: one for each, of the version that its last plan has.

    They stay when a process dies, so that the next one finds the versions of an unfinished batch.
    """

    def __init__(self, ledger: Ledger, clock: Callable[[], float]) -> None:
        self._name = f"{ledger.name}-{ledger.token}"
        self._owner = f"the pipeline {ledger.name!r} with the checkpoint {ledger.folder}"
        self._clock = clock
        self._held: dict[str, tuple[int, float]] = {}  # version, and when it was pinned
        self._refused: set[str] = set()

    def hold(self, versions: Mapping[str, int]) -> None:
        """Pin the versions of relations, by path; nothing is written for a version that is pinned already."""
        now = self._clock()
        for path, version in versions.items():
            held, since = self._held.get(path, (-1, 0.0))
            if held == version and abs(now - since) < _RENEWED_S:
                continue
            self._held[path] = version, now
            try:
                write_pin(Path(path), self._name, Pin(version, self._owner))
            except StorageError as error:  # the pipeline may only read the relation
                if path not in self._refused:
                    _LOG.warning("a vacuum may remove versions of %s that a batch still needs: %s", path, error)
                self._refused.add(path)

    def release(self, paths: Iterable[str]) -> None:
        """Remove the pins of relations, also those of a process before: no batch is unfinished."""
        for path in paths:
            try:
                remove_pin(Path(path), self._name)
            except StorageError as error:
                _LOG.warning("a pin stays for a week: %s", error)
        self._held.clear()
