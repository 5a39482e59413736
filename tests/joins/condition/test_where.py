"""Meaning of a condition's text, and errors for texts without a meaning."""

from __future__ import annotations

from fractions import Fraction

import pytest

from semistream.errors import InvalidArgument
from semistream.joins.condition.where import Compared, Near, read_terms


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("s.x BETWEEN r.lo AND r.hi", [Compared("x", ">=", "lo"), Compared("x", "<=", "hi")]),
        ("r.k between s.a and s.b", [Compared("a", "<=", "k"), Compared("b", ">=", "k")]),
        ("s.x < r.k", [Compared("x", "<", "k")]),
        ("r.k>=s.x", [Compared("x", "<=", "k")]),
        ("r.k < s.x", [Compared("x", ">", "k")]),
        ("R.k = S.x And s.y <> r.l", [Compared("x", "=", "k"), Compared("y", "!=", "l")]),
        ("s.x != r.k", [Compared("x", "!=", "k")]),
        ("abs(s.x - r.k) <= 5", [Near("x", "k", Fraction(5), False, False)]),
        ("ABS ( r.k - s.x ) < 2.50", [Near("x", "k", Fraction(5, 2), False, True)]),
        ("abs(s.x-r.k)<=1e3", [Near("x", "k", Fraction(1000), False, False)]),
        ("abs(s.x - r.k) <= 5 minutes", [Near("x", "k", Fraction(300), True, False)]),
        ("abs(s.x - r.k) <= INTERVAL '1.5 h'", [Near("x", "k", Fraction(5400), True, False)]),
        ("abs(s.x - r.k) <= interval 2 days", [Near("x", "k", Fraction(172_800), True, False)]),
        (
            "abs(s.x - r.k) < 10ns AND s.y > r.l",
            [Near("x", "k", Fraction(1, 10**8), True, True), Compared("y", ">", "l")],
        ),
        ("abs(s.x - r.k) < 10 AND s.y > r.l", [Near("x", "k", Fraction(10), False, True), Compared("y", ">", "l")]),
        ('s."unit ""price""" < r."AND"', [Compared('unit "price"', "<", "AND")]),
        ("s.between between r.and and r.ähm", [Compared("between", ">=", "and"), Compared("between", "<=", "ähm")]),
        ("  s.x\n  <\tr.k ", [Compared("x", "<", "k")]),
    ],
)
def test_texts_that_mean_something(text: str, terms: list[Compared | Near]) -> None:
    assert read_terms(text) == terms
    assert read_terms(" AND ".join(map(str, terms))) == terms  # as they are shown in messages


@pytest.mark.parametrize(
    ("text", "at", "wanted"),
    [
        ("", 1, "a column of the stream"),
        ("s.x", 4, "BETWEEN, or one of"),
        ("s.x BETWEN r.lo AND r.hi", 5, "BETWEEN, or one of"),
        ("s.x BETWEEN r.lo, r.hi", 17, "AND and the upper bound"),
        ("s.x < 5", 7, "a column of the stream"),
        ("s.x < s.y", 7, "a column with r. here"),
        ("r.x BETWEEN s.a AND r.b", 21, "a column with s. here"),
        ("s.x < r.k OR s.y > r.l", 11, "AND or the end"),
        ("s.x < r.k AND", 14, "a column of the stream"),
        ("x < r.k", 1, "a column of the stream"),
        ("abs(s.x + r.k) <= 5", 9, "- between two columns"),
        ("abs(s.x - r.k) = 5", 16, "<= or <"),
        ("abs(s.x - r.k) <= -5", 19, "a number, or a duration"),
        ("abs(s.x - r.k) <= 5 months", 21, "a unit of fixed length"),
        ("abs(s.x - r.k) <= INTERVAL '5 years'", 28, "a unit of fixed length"),
        ("abs(s.x - r.k) <= INTERVAL r.l", 28, "a duration such as"),
        ('s."x < r.k', 1, "a column of the stream"),
        ("s.x < r.k; drop table s", 10, "AND or the end"),
        ("s.x <\n  r.k\tXOR s.y", 13, "AND or the end"),
    ],
)
def test_texts_that_mean_nothing_are_shown_with_the_place(text: str, at: int, wanted: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        read_terms(text)
    first, shown, caret, accepted = str(refused.value).split("\n")
    assert f"at character {at};" in first
    assert wanted in first
    assert shown.split() == text.split()
    assert caret.index("^") == at + 1
    assert "s.x BETWEEN r.lo AND r.hi" in accepted
