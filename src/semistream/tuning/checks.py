"""What is asked of the numbers that a model is made of."""

from __future__ import annotations

import math

from semistream.errors import InvalidArgument


def require_numbers(model: object, *names: str, least: float | None = None) -> None:
    """Refuse a model if any of these attributes is not finite and above 0, or not from ``least`` on."""
    for name in names:
        value = getattr(model, name)
        if not (value > 0 if least is None else value >= least) or not math.isfinite(value):
            asked = "above 0" if least is None else f"from {least} on"
            raise InvalidArgument(f"{name} is {value}; it must be a finite number {asked}.")
