"""What all parts of a pipeline's description have in common."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from semistream.errors import SemistreamError


class SpecPart(BaseModel):
    """A part of a pipeline's description: frozen, and without settings that nobody knows."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def as_value_error(call: Any, *arguments: Any, **named: Any) -> None:
    """Let what a check of ours raises be an error of the setting at hand."""
    try:
        call(*arguments, **named)
    except SemistreamError as error:
        raise ValueError(str(error)) from error
