"""A few seconds of fuzzing: the corpus, and changes of it drawn from one seed. ``make fuzz`` searches for more."""

from __future__ import annotations

import random
import time

import pytest

from semistream.errors import SemistreamError
from tests.fuzz.changes import changed
from tests.fuzz.targets import COMMANDS, CORPUS, TARGETS, corpus

SECONDS = 0.5  # for the changes of each kind
MOST_S = 5.0
NEEDS_SPARK = ("heads", "cli")
NEVER_REFUSED = ("heads", "cli", "parquet")  # answered by a remark, by an exit code, and by the quarantine


@pytest.mark.slow
@pytest.mark.parametrize("kind", TARGETS)
def test_hostile_bytes_raise_nothing_but_our_own_errors(tmp_path, monkeypatch, kind):
    if kind in NEEDS_SPARK:
        pytest.importorskip("pyspark", reason="pip install 'semistream[spark]' to run this")
    monkeypatch.chdir(tmp_path)
    run, rng, inputs = TARGETS[kind](tmp_path), random.Random(kind), [content for _, content in corpus(kind)]
    began, tried, refused = time.monotonic(), 0, 0
    while tried < len(inputs) or time.monotonic() - began < SECONDS:
        content = inputs[tried] if tried < len(inputs) else changed(rng.choice(inputs), rng)
        since = time.monotonic()
        try:
            run(content)
        except SemistreamError as error:
            refused += 1
            said = str(error)
            assert said
            assert len(said) < 20_000
        except Exception as error:
            raise AssertionError(f"{kind}: {content!r} raised {type(error).__name__}") from error
        assert time.monotonic() - since < MOST_S or tried < len(inputs), content  # the first ones compile kernels
        tried += 1
        if tried == len(inputs):
            began = time.monotonic()
    assert tried > len(inputs)
    assert refused or kind in NEVER_REFUSED


def test_every_kind_has_a_corpus_of_small_files():
    assert sorted(folder.name for folder in CORPUS.iterdir()) == sorted(TARGETS)
    for kind in TARGETS:
        sizes = [len(content) for _, content in corpus(kind)]
        assert sizes
        assert max(sizes) <= 4096


def test_no_command_that_runs_long_is_fuzzed():
    assert not {"demo", "calibrate", "compile", "run"} & set(COMMANDS)


@pytest.mark.spark
def test_hostile_rows_go_through_sparks_parsers_or_to_the_quarantine(spark, tmp_path):
    from tests.fuzz.spark_rows import CHECKS, values

    for kind, check in CHECKS.items():
        (tmp_path / kind).mkdir()
        check(spark, tmp_path / kind, values(kind, random.Random(kind), 3000))
