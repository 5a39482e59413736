"""A pipeline that is stopped while Spark begins a batch: neither waits for the other for ever."""

from concurrent.futures import ThreadPoolExecutor
from threading import RLock
from types import SimpleNamespace

import pytest

from semistream.errors import PipelineError

pytest.importorskip("pyspark", reason="pip install 'semistream[spark]' to run these")


def test_a_batch_that_begins_while_the_query_is_stopped_is_refused():
    """Who stops the query holds the lock until Spark's thread has ended, and that waits for this call."""
    from semistream.spark.batches import Batches

    batches = object.__new__(Batches)
    batches.between, batches.closing, batches._spec = RLock(), False, SimpleNamespace(name="orders")
    with ThreadPoolExecutor(1) as spark:
        with batches.between:
            begun = spark.submit(batches.run, None, 0)
            batches.closing = True
            error = begun.exception(timeout=30)
        assert isinstance(error, PipelineError)
        assert "'orders' is being stopped" in str(error)
        with pytest.raises(PipelineError, match="no batch is begun"):
            batches.run(None, 1)
