"""Nothing in a pipeline file hangs or raises a raw error: its size, nesting, aliases and values are bounded."""

import time
from itertools import pairwise

import pytest
import yaml

from semistream.budget import parse_bytes
from semistream.errors import BudgetError, InvalidArgument, PipelineError, SemistreamError
from semistream.joins.condition.where import read_terms
from semistream.pipelines.spec.bounded_yaml import MOST_BYTES, BoundedLoader, load
from semistream.pipelines.spec.durations import parse_duration
from semistream.pipelines.spec.yaml_file import make_spec, read_spec
from semistream.storage.local_paths import local_path
from tests.pipelines.specs import PIPELINE, changed, ruled

MOST_S = 5.0  # on a busy machine; each takes less than one second on a quiet one


def nines(line):
    """Twelve levels of aliases, each with nine of the one before: 9 ** 12 values when written out."""
    return "".join(
        f"{name}: &{name} {line.format(','.join(9 * ['*' + one]))}\n" for one, name in pairwise("abcdefghijklm")
    )


TEXTS = {
    "bomb of aliases": ("a: &a [x]\n" + nines("[{}]"), "too large .* 20,000 values and keys, aliases written out"),
    "bomb of merges": ("a: &a {x: 1}\n" + nines("{{<<: [{}]}}"), "too large .* 20,000 values"),
    "keys": ("".join(f"k{i}: {i}\n" for i in range(20_000)), "too large .* 20,000 values"),
    "wrong keys": ("".join(f"k{i}: {i}\n" for i in range(9000)), "and 8,98. more"),
    "long keys": ("".join(f"{'k' * 100}{i}: {i}\n" for i in range(8000)), "unknown setting"),
    "brackets": ("[" * 100_000, "too large .* more than 50 levels"),
    "braces": ("{a: " * 100_000, "too large .* more than 50 levels"),
    "indents": ("\n".join(" " * i + "a:" for i in range(1000)), "too large .* more than 50 levels"),
    "bytes": ("#" * (MOST_BYTES + 1), "more than 1,000,000 bytes"),
    "line ends": ("\n" * MOST_BYTES, "has no settings"),
    "no date": ("a: 2024-99-99", "line 1, column 4: '2024-99-99' is no timestamp"),
    "no zone": ("a: 2024-01-01 00:00:00 +99:99", "is no timestamp"),
    "digits": ("a: " + "9" * 5000, "a number or date of 5,000 characters; at most 100"),
    "sexagesimal": ("a: 1" + ":59" * 100_000, "a number or date of 300,001 characters"),
    "float": ("a: 1e9999999\nb: 1.0e+9999999", "unknown setting"),
    "bool": ("a: !!bool maybe", "'maybe' is no bool"),
    "int": ("a: !!int ''", "'' is no int"),
    "timestamp": ("a: !!timestamp x", "'x' is no timestamp"),
    "map": ("a: !!map [x]", "is no|expected a mapping"),
    "set": ("!!set {name, source}", "has no settings|is missing|is not a valid"),
    "binary": ("name: !!binary aGk=", "is not a valid pipeline"),
    "null key": ("~: 1", "Keys should be strings"),
    "half a character": ('name: "\\ud800"', "line 1, column 7: half of a character"),
    "itself": ("a: &a {<<: *a}", "contains itself"),
}


@pytest.mark.parametrize(("text", "told"), TEXTS.values(), ids=TEXTS)
def test_a_hostile_text_is_refused_soon(tmp_path, text, told):
    (tmp_path / "pipeline.yaml").write_text(text)
    began = time.monotonic()
    with pytest.raises(PipelineError, match=rf"(?s){told}") as refused:
        read_spec(tmp_path / "pipeline.yaml", {})
    assert time.monotonic() - began < MOST_S
    assert len(str(refused.value)) < 10_000


def test_ordinary_aliases_and_merges_are_far_from_the_bounds(tmp_path):
    columns = "\n".join(f"  column_{i}: bigint" for i in range(2000))
    found = load(f"a: &a\n{columns}\nb: {{<<: *a, x: [*a, *a]}}\n")
    assert len(found["b"]) == 2001
    assert found == yaml.load(f"a: &a\n{columns}\nb: {{<<: *a, x: [*a, *a]}}\n", yaml.SafeLoader)
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(changed("source.schema", {"id": "bigint"} | found["a"])))
    assert len(read_spec(tmp_path / "pipeline.yaml").source.columns) == 2001


@pytest.mark.parametrize("text", ["a: [1, 0x1F, 1_000, 1e3, 1.5, .inf, 2024-01-02, 2024-01-02 03:04:05Z, ~, x, '1']"])
def test_values_within_the_bounds_are_read_as_ever(text):
    assert load(text) == yaml.safe_load(text)


HUGE = (
    "9" * 5000,
    10**5000,
    10**30,
    -(10**30),
    float("inf"),
    float("nan"),
    "1e9999999",
    "x" * 500_000,
    "\0",
    [[]],
    {"a": 1},
)
PLACES = (
    "name", "memory", "every", "latency", "route", "checkpoint", "sink.path", "sink.rows", "sink.format",
    "source.files_per_batch", "source.path", "source.schema", "source.schema.id", "source.options",
    "steps.0.join.relation", "steps.0.join.on", "steps.0.join.where", "steps.0.join.retry_for", "steps.0.join.how",
    "steps.0.join.suffix", "steps.0.join.options", "overload", "steps", "steps.0",
)  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_a_huge_value_in_any_setting_is_refused_or_taken(place):
    for value in HUGE:
        began, told = time.monotonic(), ""
        try:
            make_spec(changed(place, value))
        except SemistreamError as error:
            told = str(error)
        assert len(told) < 5000
        assert time.monotonic() - began < MOST_S


def test_huge_values_of_rules_are_refused_by_a_short_error():
    for value in (10**5000, "9" * 5000, "x" * 500_000, [[]], float("nan")):
        for rule in ({"min": value}, {"max": value}, {"one_of": [value]}):
            with pytest.raises(PipelineError) as refused:
                make_spec(ruled(column="id", **rule))
            assert len(str(refused.value)) < 2000
    generator = {"format": "generator", "keys": 5}
    for name in ("keys", "rate", "rows", "seed", "exponent"):
        for value in (10**30, float("inf"), -1):
            with pytest.raises(PipelineError, match=f"source.{name}: "):
                make_spec({**PIPELINE, "source": {**generator, name: value}})


CALLS = [
    (parse_duration, "9" * 5000 + "s", "not a duration"),
    (parse_duration, "1" + "0" * 17 + " weeks", "at most 100 years"),
    (parse_duration, "1e9999999s", "not a duration"),
    (parse_bytes, "9" * 5000 + "MB", "at most 1,152,921,504,606,846,976 bytes"),
    (parse_bytes, 10**30, "at most 1,152,921,504,606,846,976 bytes"),
    (parse_bytes, 10**5000, "at most 1,152,921,504,606,846,976 bytes"),
    (parse_bytes, "2000000TB", "at most 1,152,921,504,606,846,976 bytes"),
    (read_terms, "abs(s.x - r.k) <= 1e9999999", "an exponent of at most 300"),
    (read_terms, "abs(s.x - r.k) <= 1e-9999999", "an exponent of at most 300"),
    (read_terms, "abs(s.x - r.k) <= " + "9" * 5000, "a number of at most 100 digits"),
    (read_terms, "abs(s.x - r.k) <= interval '" + "9" * 5000 + " s'", "of fixed length in the quotes"),
    (read_terms, "s.a = r.a AND " * 5000 + "s.a = r.a", "has 70,009 characters; at most 20,000"),
    (read_terms, "(" * 19_000, "cannot be parsed at character 1"),
    (read_terms, "s.a = r.a AND " * 1000 + "s.a", "cannot be parsed at character 14004"),
    (local_path, "a\0b", "has a character NUL"),
    (local_path, "file:///a%00b", "has a character NUL"),
    (local_path, "a" * 100_000, "has 100,000 characters; at most 4,000"),
]


@pytest.mark.parametrize(("read", "text", "told"), CALLS, ids=range(len(CALLS)))
def test_a_huge_text_is_refused_by_value_and_limit(read, text, told):
    began = time.monotonic()
    with pytest.raises((InvalidArgument, BudgetError)) as refused:
        read(text)
    assert told in str(refused.value)
    assert len(str(refused.value)) < 1500
    assert time.monotonic() - began < MOST_S


def test_a_long_condition_is_shown_around_the_fault():
    with pytest.raises(InvalidArgument) as refused:
        read_terms("s.a = r.a AND " * 1000 + "s.a ! r.b")
    shown, caret = str(refused.value).splitlines()[1:3]
    assert shown[caret.index("^")] == "!"
    assert len(shown) < 250


def test_the_loader_takes_no_python_objects():
    for tag in ("python/object:os.system", "python/name:os.system", "python/tuple", "python/object/apply:os.getcwd"):
        with pytest.raises(yaml.YAMLError):
            yaml.load(f"!!{tag} [x]", BoundedLoader)


@pytest.mark.parametrize("distance", ["1.5", "0.1", "1.999999999999999999999999999999", "1e-30", "2.50", "7", "1e20"])
def test_a_distance_is_told_as_exactly_as_it_was_given(distance):
    (term,) = read_terms(f"abs(s.x - r.k) <= {distance}")
    assert read_terms(str(term)) == [term]
