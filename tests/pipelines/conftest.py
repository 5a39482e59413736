"""Close everything that tests of chains open."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.pipelines.steps.chain_model import close_joins


@pytest.fixture(autouse=True)
def closed_joins() -> Iterator[None]:
    """No thread of a join goes on behind its test."""
    yield
    close_joins()
