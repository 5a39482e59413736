"""Quotas: how many of the rows that are as good as each other each part keeps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def chance_quotas(rows: Sequence[int], keep: int, seed: int) -> tuple[int, ...]:
    """How many of ``keep`` rows, a uniform sample of all, lie in each part: a multivariate hypergeometric draw.

    Part after part, the rows in it against the rows in those behind it. If each part then keeps so many of its own by
    a uniform sample, what is kept of the whole is a uniform sample of exactly ``keep`` rows: every set of that many is
    as likely as every other, though no task has seen the rows of another.

    >>> sum(chance_quotas([500, 300, 200], 100, seed=1))
    100
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    quotas, behind = [], sum(rows)
    for own in rows:
        behind -= own
        quotas.append(int(generator.hypergeometric(own, behind, keep)))
        keep -= quotas[-1]
    return tuple(quotas)


def even_quotas(rows: Sequence[int], keep: int) -> tuple[int, ...]:
    """``keep`` rows shared out in proportion to the rows of each part, so that no task gets more than its share.

    What rounding leaves goes to the largest remainders, of equal ones to the first.

    >>> even_quotas([50, 30, 20], 11)
    (6, 3, 2)
    """
    total = sum(rows)
    if not total:
        return (0,) * len(rows)
    quotas = [own * keep // total for own in rows]
    by_remainder = sorted(range(len(rows)), key=lambda part: -(rows[part] * keep % total))
    for part in by_remainder[: keep - sum(quotas)]:
        quotas[part] += 1
    return tuple(quotas)


def last_quotas(rows: Sequence[int], keep: int) -> tuple[int, ...]:
    """``keep`` rows in as few parts as can be, the last ones: all parts but one keep all of their rows or none.

    >>> last_quotas([50, 30, 20], 35)
    (0, 15, 20)
    """
    quotas = [0] * len(rows)
    for part in range(len(rows) - 1, -1, -1):
        quotas[part] = min(rows[part], keep)
        keep -= quotas[part]
    return tuple(quotas)
