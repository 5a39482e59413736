"""A few seconds of fuzzing: the corpus, and changes of it drawn from one seed. ``make fuzz`` searches for more."""

from __future__ import annotations

import random
import time

import pytest

from semistream.errors import SemistreamError
from tests.fuzz.targets import COMMANDS, CORPUS, TARGETS, corpus

SECONDS = 0.5  # for the changes of each kind
MOST_S = 5.0
NEEDS_SPARK = ("heads", "cli")
NEVER_REFUSED = ("heads", "cli", "parquet")  # answered by a remark, by an exit code, and by the quarantine
_VALUES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1, 2**63)
_WORDS = (
    b"9" * 30,
    b"1e999",
    b"[" * 60,
    b"../",
    b"\xff",
    b"\0",
    b"null",
    b"-1",
    b'"',
    b"'",
    b"\n",
    b"*a",
    b"<<",
    b"${",
)


def changed(content: bytes, rng: random.Random) -> bytes:
    """Change a few bytes: to values and words that tend to do harm, or by cutting and copying a part."""
    new = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at, size = rng.randrange(len(new) + 1), rng.choice((1, 2, 4, 8))
        match rng.randrange(5):
            case 0:
                new[at : at + size] = (rng.choice(_VALUES) % 256**size).to_bytes(size, "little")
            case 1:
                new[at : at + rng.randint(0, 4)] = rng.choice(_WORDS)
            case 2:
                del new[at : at + rng.randint(1, 20)]
            case 3:
                begin = rng.randrange(len(new) + 1)
                new[at:at] = new[begin : begin + rng.randint(1, 40)]
            case 4 if at < len(new):
                new[at] ^= 1 << rng.randrange(8)
    return bytes(new)


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
