"""Decisions read back from a ledger."""

from __future__ import annotations

import json

from semistream.errors import SemistreamError
from semistream.shedding.cluster_decision import ClusterDecision
from semistream.shedding.cut_decision import CutDecision
from semistream.shedding.decision import Decision

_KINDS = {kind.kind: kind for kind in (CutDecision, ClusterDecision)}


def read_decision(text: str) -> Decision:
    """The decision that `Decision.to_json` has written.

    >>> from semistream.shedding import SampleW, StreamPart
    >>> decision = SampleW().decide([SampleW().summarize(StreamPart(10))], 4, seed=1)
    >>> read_decision(decision.to_json()) == decision
    True
    """
    try:
        record = json.loads(text)
        kind = _KINDS[record.pop("kind")]
        return kind.from_record(record)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SemistreamError(
            f"{text[:80]!r} is not a decision about shedding ({type(error).__name__}: {error}). "
            "Restore the ledger from a copy, or let the batch be decided anew."
        ) from error
