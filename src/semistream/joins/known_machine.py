"""What a join knows of the machine that it runs on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from semistream.relation import AnyRelation
from semistream.tuning.machine import Machine
from semistream.tuning.profiles import machine_for


def known_machine(relation: AnyRelation, arguments: Mapping[str, Any]) -> Machine | None:
    """This machine, by its profile or the defaults, if a join opens R's disk itself; None if it was given another."""
    return machine_for(relation.path) if isinstance(arguments.get("disk", "auto"), str) else None
