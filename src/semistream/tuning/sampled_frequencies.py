"""KeyFrequencies of a sample: the hottest keys as they were counted, all others by the law that fits them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from semistream.errors import InvalidArgument
from semistream.kernels.fingerprint import often_counted
from semistream.kernels.types import Int64s
from semistream.tuning.frequencies import KeyFrequencies
from semistream.tuning.tail_fit import Fingerprint, TailFit

COUNTED = 100  # times that a key must come to stand for itself: its frequency is then known to a tenth


def frequencies_of_sample(codes: Int64s, num_keys: int) -> KeyFrequencies:
    """How often a stream asks for each of R's ``num_keys`` keys, from a sample of its key codes, in any order.

    Keys that came a hundred times are counted, the others fitted (`TailFit`). The share of the hottest keys, and what
    comes in ten times as many tuples, is known to a few points. How keys differ that are too rare for the sample is
    not: with s tuples, that is those of P well below 1 / s.

    >>> from semistream.streams import Zipf
    >>> found = frequencies_of_sample(Zipf(1.0, 10**6, seed=3).keys(20_000), 10**6)
    >>> exact = KeyFrequencies.zipf(1.0, 10**6)
    >>> abs(found.share(1000) - exact.share(1000)) < 0.03
    True
    """
    if codes.size == 0:
        raise InvalidArgument("the sample is empty; give the key codes of some tuples.")
    ordered = np.sort(codes)
    hottest, counts = (np.empty(codes.size // COUNTED, np.int64) for _ in range(2))
    found = often_counted(ordered, COUNTED, hottest, counts)
    tail = Fingerprint.of(ordered, without=hottest[:found])
    return frequencies_of_parts(counts[:found] / codes.size, tail, num_keys)


def frequencies_of_parts(hottest: npt.NDArray[np.float64], tail: Fingerprint, num_keys: int) -> KeyFrequencies:
    """From the shares of the stream that the ``hottest`` keys have, and a sample of what asks for others."""
    if num_keys < 1:
        raise InvalidArgument(f"num_keys is {num_keys}; R has at least 1.")
    left = max(1 - float(hottest.sum()), 0.0) if tail.tuples else 0.0
    keys, probability = np.ones(hottest.size), hottest
    if left > 0:
        groups = TailFit(tail, behind=hottest.size, most_keys=num_keys - hottest.size).groups()
        keys = np.concatenate([keys, groups.keys])
        probability = np.concatenate([probability, left * groups.probability])
    unasked = num_keys - float(keys.sum())
    if unasked >= 1:
        keys, probability = np.append(keys, unasked), np.append(probability, 0.0)
    order = np.argsort(-probability, kind="stable")
    keys, probability = keys[order], probability[order]
    return KeyFrequencies(keys, probability / float(keys @ probability))
