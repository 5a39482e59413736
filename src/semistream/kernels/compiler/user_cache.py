"""The user's cache folder, which holds compiled kernels and machine profiles."""

from __future__ import annotations

from pathlib import Path

import platformdirs


def user_cache() -> Path | None:
    """Return ``semistream`` in the user's cache folder of this system; None if the user has no home folder."""
    try:
        folder = platformdirs.user_cache_path("semistream", appauthor=False)
    except RuntimeError:
        return None
    return folder if folder.is_absolute() else None  # older platformdirs leave "~" where there is no home folder
