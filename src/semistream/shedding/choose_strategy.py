"""Choose a shedding strategy, by MESH Table 2 or by name, and read its decisions back from a ledger."""

from __future__ import annotations

import json
from typing import Literal, get_args

from semistream.errors import InvalidArgument, SemistreamError
from semistream.shedding.cluster_sampling import ClusterDecision, ClusterSampling
from semistream.shedding.decision import CutDecision, Decision
from semistream.shedding.keep_and_sample import KeepW, SampleW
from semistream.shedding.strategy import Strategy
from semistream.shedding.top_w import TopW

Loss = Literal["max_subset", "random_sample"]
"""Loss criterion (MESH 4.1): lose as few results as possible, or keep a sample that supports estimates."""

STRATEGIES: dict[str, type[Strategy]] = {each.name: each for each in (KeepW, SampleW, TopW, ClusterSampling)}
"""Shedding strategies by name: the names that `choose_strategy` takes."""


def choose_strategy(loss: Loss = "max_subset", *, unique_keys: bool | None = None, name: str | None = None) -> Strategy:
    """Return the strategy for a loss criterion and the join's cardinality, or the one called ``name``.

    =====================  ==============  ===================
    keys of R              ``max_subset``  ``random_sample``
    =====================  ==============  ===================
    unique                 `KeepW`         `SampleW`
    repeat, or unknown     `TopW`          `ClusterSampling`
    =====================  ==============  ===================

    Parameters
    ----------
    loss : {"max_subset", "random_sample"}
        ``max_subset`` loses as few results as possible, ``random_sample`` keeps a sample that supports estimates.
    unique_keys : bool, optional
        True if no key of R repeats (`MatchCounts.unique`); None if unknown.
    name : str, optional
        Name in `STRATEGIES`. The other parameters are then ignored.

    Examples
    --------
    >>> choose_strategy("random_sample", unique_keys=True).name, choose_strategy(name="top_w").name
    ('sample_w', 'top_w')

    References
    ----------
    MESH 4.1, Table 2. docs/shedding.md.
    """
    if name is not None:
        if name not in STRATEGIES:
            raise InvalidArgument(f"the strategy is {name!r}; give one of {', '.join(STRATEGIES)}.")
        return STRATEGIES[name]()
    if loss not in get_args(Loss):
        raise InvalidArgument(f"loss is {loss!r}; give one of {', '.join(get_args(Loss))}.")
    if loss == "max_subset":
        return KeepW() if unique_keys else TopW()
    return SampleW() if unique_keys else ClusterSampling()


_KINDS = {kind.kind: kind for kind in (CutDecision, ClusterDecision)}


def read_decision(text: str) -> Decision:
    """Read a decision that `Decision.to_json` has written.

    The result equals the decision written, and keeps the same rows.

    Parameters
    ----------
    text : str
        JSON text. Anything else raises `SemistreamError`.

    Examples
    --------
    >>> from semistream.shedding import SampleW, StreamPart
    >>> decision = SampleW().decide([SampleW().summarize(StreamPart(10))], 4, seed=1)
    >>> read_decision(decision.to_json()) == decision
    True

    References
    ----------
    docs/shedding.md.
    """
    try:
        record = json.loads(text)
        kind = _KINDS[record.pop("kind")]
        return kind.from_record(record)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SemistreamError(
            f"{text[:80]!r} is not a shedding decision ({type(error).__name__}: {error}). "
            "Restore the ledger from a copy, or decide the batch anew."
        ) from error
