"""Base class of all parts of a pipeline spec."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from semistream.errors import SemistreamError


class SpecPart(BaseModel):
    """Part of a pipeline spec: frozen, and strict about unknown settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def as_value_error(call: Any, *arguments: Any, **named: Any) -> None:
    """Call a check, and turn its `SemistreamError` into a ValueError, which pydantic reports for the setting."""
    try:
        call(*arguments, **named)
    except SemistreamError as error:
        raise ValueError(str(error)) from error
