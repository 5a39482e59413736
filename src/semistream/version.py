"""The version, where every part of the package may read it."""

from __future__ import annotations

__version__ = "0.1.0"
