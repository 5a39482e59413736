"""Kinds of join, in our names and in Spark's."""

from __future__ import annotations

import difflib
from typing import Literal, cast, get_args

from semistream.errors import InvalidArgument, shortened

JoinKind = Literal["inner", "left", "semi", "anti"]
_OTHER_NAMES = {"leftouter": "left", "leftsemi": "semi", "leftanti": "anti"}


def join_kind(how: str) -> JoinKind:
    """Return the kind of join that ``how`` names, also in Spark's spellings.

    >>> join_kind("left_outer"), join_kind("leftanti"), join_kind("Inner")
    ('left', 'anti', 'inner')
    """
    if isinstance(how, str):
        plain = how.lower().replace("_", "")
        kind = _OTHER_NAMES.get(plain, plain)
        if kind in get_args(JoinKind):
            return cast(JoinKind, kind)
    near = difflib.get_close_matches(str(how)[:100], get_args(JoinKind), n=1)
    raise InvalidArgument(
        f"how is {shortened(how)}; give one of {', '.join(get_args(JoinKind))}, or Spark's name of one, such as "
        "left_outer." + (f" Did you mean {near[0]!r}?" if near else "")
    )
