"""Name the file that Spark cannot read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from semistream.errors import PipelineError
from semistream.spark.kafka.connector import FAILURES, failure_text
from semistream.spark.sources.files import local_path

_FAILED = re.compile(
    r"\[FAILED_READ_FILE[^]]*\] Encountered error while reading file (\S+)\.\s"
    r"|\[PATH_NOT_FOUND\] Path does not exist: (\S+)\.\s"
)


@contextmanager
def named_failures() -> Iterator[None]:
    """Raise `PipelineError` with the name of a file that Spark cannot read, or that is gone, within the block."""
    try:
        yield
    except FAILURES as error:
        found = _FAILED.search(str(error))
        if found is None:
            raise
        raise PipelineError(
            f"{local_path(found[1] or found[2])}, a file of the source, cannot be read: {failure_text(error)}. Nothing "
            "of its batch was committed. Put a whole file of that name there, and start the pipeline again."
        ) from error
