"""Parser of ``where``: comparisons of stream columns with relation columns, as text or Arrow expressions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import Literal, NoReturn, TypeAlias, cast

import pyarrow.compute as pc

from semistream.errors import InvalidArgument, hidden
from semistream.keys.comparison import Order
from semistream.keys.duration_text import UNIT_SECONDS, duration_seconds

Where: TypeAlias = str | pc.Expression | Sequence[str | pc.Expression]

ACCEPTED = (
    "s.x BETWEEN r.lo AND r.hi; r.k BETWEEN s.a AND s.b; s.x < r.k with <, <=, >, >=, =, != or <=>, "
    "by which null equals null; "
    "abs(s.x - r.k) <= 5, or <, with a number or a duration such as 5 minutes; several of these with AND between. "
    "s. is the stream, r. the relation; names with characters other than letters, digits and _ go in double quotes: "
    's."unit price". Write anything else as a pyarrow.compute expression'
)
"""Accepted syntax of the text of a condition, for error messages."""

_TOKEN = re.compile(
    r"\s*(?:(?P<column>[srSR]\.(?:\"(?:[^\"]|\"\")*\"|\w+))|(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<string>'[^']*')|(?P<word>[^\W\d]\w*)|(?P<sign><=>|<=|>=|!=|<>|[<>=(),+\-*/])|(?P<end>$))"
)
_MOST_CHARACTERS = 20_000  # of a text
_MOST_DIGITS, _MOST_EXPONENT = 100, 300  # of a number
_MOST_SHOWN = 200  # characters of a text in an error
_EXACT = Context(prec=1000)  # a number as written, times a unit, has a last digit
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!=", "<=>": "<=>"}


@dataclass(frozen=True)
class Compared:
    """A comparison of a stream column with a relation column."""

    stream: str
    operator: Order | Literal["=", "!=", "<=>"]
    relation: str

    def __str__(self) -> str:
        return f"s.{quoted(self.stream)} {self.operator} r.{quoted(self.relation)}"


@dataclass(frozen=True)
class Near:
    """A band: two columns differ by at most ``distance``, a number or a duration in seconds; if ``strict``, by less."""

    stream: str
    relation: str
    distance: Fraction
    is_duration: bool
    strict: bool

    def __str__(self) -> str:
        sign = "<" if self.strict else "<="
        numerator, denominator = self.distance.as_integer_ratio()
        distance = str(numerator) if denominator == 1 else str(_EXACT.divide(Decimal(numerator), Decimal(denominator)))
        unit = " seconds" if self.is_duration else ""
        return f"abs(s.{quoted(self.stream)} - r.{quoted(self.relation)}) {sign} {distance}{unit}"


Term = Compared | Near


def quoted(name: str) -> str:
    """Return a column name as written in the text of a condition, in double quotes if necessary."""
    return name if re.fullmatch(r"\w+", name) else '"' + name.replace('"', '""') + '"'


def where_parts(where: Where | None) -> tuple[str | pc.Expression, ...]:
    """Return the texts and expressions in ``where``, all of which must hold."""
    if where is None:
        return ()
    parts = tuple(where) if isinstance(where, Sequence) and not isinstance(where, str) else (where,)
    for part in parts:
        if not isinstance(part, str | pc.Expression):
            raise InvalidArgument(
                f"where is or contains an object of type {type(part).__name__} ({part!r}); give a string, a "
                f"pyarrow.compute expression, or a sequence of both. Accepted in a string: {ACCEPTED}."
            )
    return parts


def read_terms(text: str) -> list[Term]:
    """Parse the comparisons in a text, all of which must hold.

    >>> [str(term) for term in read_terms("r.k between s.a and s.b AND abs(s.x - r.y) < 5 minutes")]
    ['s.a <= r.k', 's.b >= r.k', 'abs(s.x - r.y) < 300 seconds']
    """
    return list(_Reader(text).terms())


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int


@dataclass(frozen=True)
class _Column:
    side: str
    name: str
    start: int


class _Reader:
    """Recursive-descent parser of one text."""

    def __init__(self, text: str) -> None:
        if len(text) > _MOST_CHARACTERS:
            raise InvalidArgument(
                f"where has {len(text):,} characters; at most {_MOST_CHARACTERS:,} are read. Give several conditions."
            )
        self._text = text
        self._at = 0
        self._token = self._next()

    def terms(self) -> Iterator[Term]:
        yield from self._term()
        while self._takes_word("AND"):
            yield from self._term()
        if self._token.kind != "end":
            self._fail("AND or the end")

    def _term(self) -> Iterator[Term]:
        if self._takes_word("ABS"):
            yield self._near()
            return
        left = self._column()
        if self._takes_word("BETWEEN"):
            low = self._column()
            if not self._takes_word("AND"):
                self._fail("AND and the upper bound of BETWEEN")
            yield self._compared(left, ">=", low)
            yield self._compared(left, "<=", self._column())
            return
        sign = {"<>": "!="}.get(self._token.text, self._token.text)
        if sign not in _MIRRORED:
            self._fail("BETWEEN, or one of < <= > >= = != <=>")
        self._token = self._next()
        yield self._compared(left, sign, self._column())

    def _near(self) -> Near:
        self._take("(", "( after abs")
        left = self._column()
        self._take("-", "- between two columns")
        right = self._column()
        stream, relation = self._sides(left, right)
        self._take(")", ") after the two columns")
        strict = self._token.text == "<"
        if self._token.text not in ("<", "<="):
            self._fail("<= or <")
        self._token = self._next()
        distance, is_duration = self._distance()
        return Near(stream, relation, distance, is_duration, strict)

    def _distance(self) -> tuple[Fraction, bool]:
        is_duration = self._takes_word("INTERVAL")
        if is_duration and self._token.kind == "string":
            inner = self._token
            self._token = self._next()
            return self._duration_of(inner), True
        if self._token.kind != "number":
            self._fail("a duration such as '5 minutes'" if is_duration else "a number, or a duration such as 5 minutes")
        number = self._number()
        self._token = self._next()
        if not is_duration and (self._token.kind != "word" or self._token.text.upper() == "AND"):
            return number, False
        if self._token.text.lower() not in UNIT_SECONDS:
            self._fail("a unit of fixed length, from nanoseconds to weeks")
        seconds = number * UNIT_SECONDS[self._token.text.lower()]
        self._token = self._next()
        return seconds, True

    def _number(self) -> Fraction:
        digits, _, exponent = self._token.text.lower().partition("e")
        if len(digits) > _MOST_DIGITS or len(exponent) > 4 or abs(int(exponent or 0)) > _MOST_EXPONENT:
            self._fail(f"a number of at most {_MOST_DIGITS} digits, with an exponent of at most {_MOST_EXPONENT}")
        return Fraction(self._token.text)

    def _duration_of(self, token: _Token) -> Fraction:
        seconds = duration_seconds(token.text[1:-1])
        if seconds is None:
            self._token = token
            self._fail("a number and a unit of fixed length in the quotes, such as '5 minutes'")
        return seconds

    def _compared(self, left: _Column, sign: str, right: _Column) -> Compared:
        stream, relation = self._sides(left, right)
        operator = sign if left.side == "s" else _MIRRORED[sign]
        return Compared(stream, cast("Order", operator), relation)

    def _sides(self, left: _Column, right: _Column) -> tuple[str, str]:
        """Return the names of the stream column and the relation column; fail if both belong to the same side."""
        if left.side == right.side:
            self._token = _Token("column", self._text[right.start : self._token.start], right.start)
            whose, other = ("the stream", "r.") if right.side == "s" else ("the relation", "s.")
            self._fail(f"a column with {other} here (two columns of {whose} do not make a join)")
        return (left.name, right.name) if left.side == "s" else (right.name, left.name)

    def _column(self) -> _Column:
        token = self._token
        if token.kind != "column":
            self._fail("a column of the stream (s.name) or of the relation (r.name)")
        name = token.text[2:]
        if name.startswith('"'):
            name = name[1:-1].replace('""', '"')
        self._token = self._next()
        return _Column(token.text[0].lower(), name, token.start)

    def _take(self, sign: str, wanted: str) -> None:
        if self._token.text != sign:
            self._fail(wanted)
        self._token = self._next()

    def _takes_word(self, word: str) -> bool:
        if self._token.kind != "word" or self._token.text.upper() != word:
            return False
        self._token = self._next()
        return True

    def _next(self) -> _Token:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            rest = self._text[self._at :]
            return _Token("unknown", rest.strip(), self._at + len(rest) - len(rest.lstrip()))
        self._at = found.end()
        kind = str(found.lastgroup)
        return _Token(kind, found[kind], found.start(kind))

    def _fail(self, wanted: str) -> NoReturn:
        begin = max(self._token.start - _MOST_SHOWN // 2, 0) if len(self._text) > _MOST_SHOWN else 0
        line = re.sub(r"\s", " ", hidden(self._text[begin : begin + _MOST_SHOWN]))
        raise InvalidArgument(
            f"where cannot be parsed at character {self._token.start + 1}; expected {wanted}:\n"
            f"  {line}\n  {' ' * (self._token.start - begin)}^\nAccepted: {ACCEPTED}."
        )
