"""Jars from `make jars`: those of a broker, and those that Spark needs besides its own."""

from __future__ import annotations

from pathlib import Path

JARS = Path(__file__).parents[3] / ".jars"
HOW = "run `make jars` first"


def broker_jars() -> list[str]:
    """Of a broker."""
    return _jars("broker", "*")


def connector_jars() -> list[str]:
    """Of Spark's connector for Kafka."""
    return [jar for jar in _jars("spark", "*") if jar not in delta_jars()]


def delta_jars() -> list[str]:
    """Of Spark's own Delta."""
    return _jars("spark", "delta-*")


def _jars(folder: str, name: str) -> list[str]:
    return sorted(map(str, (JARS / folder).glob(f"{name}.jar")))
