"""A stopped pipeline finishes its current batch, and begins no other."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event, RLock
from types import SimpleNamespace

import pytest

from semistream.errors import PipelineError

pytest.importorskip("pyspark", reason="pip install 'semistream[spark]' to run these")


def test_the_batch_at_hand_is_waited_for_and_the_next_one_is_refused():
    from semistream.pipelines.batch.batch_runner import BatchRunner

    batches = object.__new__(BatchRunner)
    batches._on_its_way, batches._ended, batches._spec = RLock(), False, SimpleNamespace(name="orders")
    batches._publishing, batches._publisher = None, ThreadPoolExecutor(1)
    released = []
    batches._planner = SimpleNamespace(release=lambda: released.append(batches._ended))
    begun, goes_on = Event(), Event()

    def batch():
        with batches._on_its_way:
            begun.set()
            goes_on.wait(30)
            return batches._ended

    with ThreadPoolExecutor(2) as threads:
        on_its_way = threads.submit(batch)
        begun.wait(30)
        ending = threads.submit(batches.end)
        assert not ending.done()
        goes_on.set()
        assert on_its_way.result(30) is False
        ending.result(30)
    assert released == [True]
    with pytest.raises(PipelineError, match="'orders' was stopped before this batch began"):
        batches.run(1, None)
