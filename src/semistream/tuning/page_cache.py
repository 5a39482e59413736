"""How much memory a system has to hold pages of files in, beside what its processes use."""

from __future__ import annotations

from pathlib import Path

MEMORY = Path("/proc/meminfo")
_AVAILABLE = "MemAvailable:"
_UNIT = 1024  # "kB"


def page_cache_bytes() -> int:
    """The memory that the system could give to pages of files now, those that it holds already among it.

    0 where it does not tell: then every page is taken to be read from the disk.
    """
    try:
        lines = MEMORY.read_text().splitlines()
    except OSError:
        return 0
    found = (line.split()[1] for line in lines if line.startswith(_AVAILABLE))
    return int(next(found, 0)) * _UNIT
