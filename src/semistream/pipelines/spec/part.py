"""Base class of all parts of a pipeline spec."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from semistream.errors import SemistreamError, hidden
from semistream.storage.local_paths import local_path


class SpecPart(BaseModel):
    """Part of a pipeline spec: frozen, and strict about unknown settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    def __repr__(self) -> str:
        return hidden(super().__repr__())

    def __str__(self) -> str:
        return hidden(super().__str__())


def _local(value: Any) -> Any:
    return local_path(value) if isinstance(value, str | Path) else value  # pydantic reports other types


LocalPath = Annotated[Path, BeforeValidator(_local)]
"""A setting that is a path without a scheme such as ``s3://``."""


def as_value_error(call: Any, *arguments: Any, **named: Any) -> None:
    """Call a check, and turn its `SemistreamError` into a ValueError, which pydantic reports for the setting."""
    try:
        call(*arguments, **named)
    except SemistreamError as error:
        raise ValueError(str(error)) from error
