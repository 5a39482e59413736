"""Pipeline files: errors name the place and the nearest valid name; secrets come from the environment."""

import copy
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from semistream.errors import InvalidArgument, PipelineError
from semistream.pipelines.spec.pipeline_spec import PipelineSpec
from semistream.pipelines.spec.yaml_file import make_spec, read_spec
from tests.pipelines.specs import PIPELINE, changed, ruled

UPDATES = {"format": "json", "path": "changes"}


def refusal(content):
    with pytest.raises(PipelineError) as refused:
        make_spec(content)
    return str(refused.value)


def written(folder, text, environment=None):
    (folder / "pipeline.yaml").write_text(text)
    return read_spec(folder / "pipeline.yaml", environment or {})


@pytest.mark.parametrize(
    ("place", "nearest"),
    [
        ("sorce", "source"),
        ("unmached", "unmatched"),
        ("source.pth", "path"),
        ("source.shema", "schema"),
        ("sink.partition", "partition_by"),
        ("steps.0.jion", "join"),
        ("steps.0.join.unmached", "unmatched"),
        ("steps.0.join.relations", "relation"),
    ],
)
def test_a_misspelt_setting_names_the_nearest_valid_one(place, nearest):
    message = refusal(changed(place, "x"))
    shown = place.replace(".0", "[0]")
    assert f"  {shown}: unknown setting; valid settings are" in message
    assert f"Did you mean {nearest!r}?" in message
    assert "Tuple" not in message


def test_the_settings_of_the_kind_of_source_at_hand_are_named():
    topic = {"format": "kafka", "servers": "a:9092", "topics": "orders", "schema": {"id": "bigint"}}
    message = refusal(changed("source", topic))
    assert "source.topic: is missing" in message
    assert "source.topics: unknown setting; valid settings are schema, rules, options, format, servers" in message
    assert "Did you mean 'topic'?" in message
    generator = {"format": "generator", "keys": 5, "exponnt": 1.0}
    assert "Did you mean 'exponent'?" in refusal(changed("source", generator))


def test_settings_within_lists_and_within_other_settings_are_found():
    assert "source.rules[0].colum: unknown setting; valid settings are column, not_null" in refusal(ruled(colum="id"))
    join = {"relation": "r", "on": "id", "updates": {**UPDATES, "pathh": "x"}}
    assert "steps[0].join.updates.pathh: unknown setting; valid settings are format, path" in refusal(
        changed("steps.0.join", join)
    )


@pytest.mark.parametrize(
    ("place", "value", "nearest"),
    [
        ("source.format", "parqet", "parquet"),
        ("source.format", "Kafka", "kafka"),
        ("steps.0.join.how", "iner", "inner"),
        ("sink.format", "deltas", "delta"),
        ("source.on_schema_change", "stopp", "stop"),
    ],
)
def test_a_wrong_word_names_the_nearest_valid_one(place, value, nearest):
    message = refusal(changed(place, value))
    assert value in message
    assert f"Did you mean {nearest!r}?" in message


def test_one_error_has_all_mistakes_and_no_pydantic_text():
    spec = {**changed("steps.0.join.on", 5), "memory": "much", "every": "0s"}
    message = refusal(spec)
    assert [line.split(":")[0].strip() for line in message.splitlines()[1:]] == ["steps[0].join.on", "memory", "every"]
    assert "pydantic" not in message
    assert "str:" not in message


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        ("source.schema", {"id": "bigit"}, "'bigit' is not a column type"),
        ("source.schema", {"m": "decimal(39, 2)"}, "at most 38 digits"),
        ("source.schema", {"m": "decimal(5, 6)"}, "not a column type"),
        ("source.schema", {"__row": "bigint"}, "reserved for the pipeline"),
        ("source.schema", {}, "at least 1"),
        ("source.files_per_batch", 0, "greater than or equal to 1"),
        ("source", {"path": "x"}, "`format` must be one of parquet, json, csv, kafka, generator"),
        ("source", "kafka", "source"),
        ("steps", [], "at least 1"),
        ("steps", [{}], "a step must be exactly one of join"),
        ("steps", [{"join": None}], "the step join has no settings"),
        ("steps", [{"join": {"relation": "r"}}], "needs `on`, the columns that must be equal, or `where`"),
        ("steps", [{"compute": {"a": "1"}}], "compute alone is not enough"),
        ("steps", [{"changes": {"relation": "r", "key": []}}], "at least 1"),
        ("steps.0.join.retry_for", "soon", "not a duration"),
        ("every", "9" * 400 + "s", "not a duration"),
        ("every", "-1s", "not a duration"),
        ("every", 5, "valid string"),
        ("latency", "0ms", "not a duration"),
        ("memory", "-5MB", "memory"),
        ("memory", 0, "more than zero"),
        ("name", "../orders", "not a valid pipeline name"),
        ("name", "orders\n", "not a valid pipeline name"),
        ("name", "", "not a valid pipeline name"),
        ("sink", {"format": "delta"}, "needs `path`"),
        ("sink", {"format": "kafka", "topic": "x"}, "`servers` and `topic`"),
        ("sink", {"format": "console", "partition_by": ["id"]}, "for tables with a folder"),
        ("route", "hash", "'none' or 'range'"),
    ],
)
def test_values_that_make_no_sense_are_refused(place, value, told):
    assert told in refusal(changed(place, value))


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"column": "id"}, "the rule for 'id' is empty"),
        ({"column": "idd", "not_null": True}, "Did you mean 'id'?"),
        ({"column": "id", "min": 5, "max": 1}, "lets no value pass"),
        ({"column": "id", "min": 10**30}, "Give a value of the column's type"),
        ({"column": "id", "min": 2.5}, "Give a value of the column's type"),
        ({"column": "id", "min": "x"}, "Give a value of the column's type"),
        ({"column": "id", "one_of": []}, "at least 1"),
        ({"column": "id", "one_of": [[1]]}, "Give a value of the column's type"),
        ({"column": "ok", "one_of": [1]}, "Give a value of the column's type"),
        ({"column": "id", "one_of": [True]}, "Give a value of the column's type"),
        ({"column": "weight", "min": float("nan")}, "NaN"),
        ({"column": "price", "min": 1.555}, "Give a value of the column's type"),
        ({"column": "day", "min": "yesterday"}, "Give a value of the column's type"),
    ],
)
def test_rules_that_no_value_can_be_held_against_are_refused(rule, told):
    assert told in refusal(ruled(**rule))


def test_bounds_of_decimals_are_as_they_are_written():
    (rule,) = make_spec(ruled(column="price", min=10, max=10.05)).source.rules
    prices = pa.array([Decimal(text) for text in ("9.99", "10.00", "10.05", "10.06")], pa.decimal128(10, 2))
    assert rule.rule.broken(prices).to_pylist() == [True, False, False, True]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("unmatched.path", "tables/sales"),
        ("unmatched.path", "tables/sales/unmatched"),
        ("quarantine.path", "tables"),
        ("unmatched.path", "x/../tables/sales"),
        ("checkpoint", "tables/sales/checkpoint"),
        ("sink.path", "checkpoint"),
        ("sink.path", "incoming/sales"),
        ("sink.path", "products"),
        ("sink.path", ""),
    ],
)
def test_tables_sources_and_relations_do_not_share_folders(place, value):
    assert "share a folder" in refusal(changed(place, value))


def test_two_relations_with_updates_have_two_names():
    joins = [{"join": {"relation": f"{at}/products", "on": "id", "updates": UPDATES}} for at in "ab"]
    assert "two joins have updates of a relation 'products'" in refusal(changed("steps", joins))


def test_paths_are_taken_from_the_file(tmp_path):
    text = yaml.safe_dump(changed("checkpoint", str(tmp_path / "elsewhere")))
    spec = written(tmp_path, text)
    assert spec.source.path == tmp_path / "incoming"
    assert spec.relations == [tmp_path / "products"]
    assert spec.checkpoint == tmp_path / "elsewhere"
    with pytest.raises(PipelineError, match="share a folder"):
        written(tmp_path, yaml.safe_dump(changed("checkpoint", str(tmp_path / "tables/sales"))))


def test_what_is_written_out_again_is_the_same_pipeline():
    spec = make_spec(changed("steps.0.join.unmatched", None))
    assert spec.steps[0].join.unmatched == "null"
    again = PipelineSpec.model_validate(spec.model_dump(by_alias=True, exclude_unset=True))
    assert again == spec.below(Path())
    with pytest.raises(ValueError, match="frozen"):
        spec.name = "other"


def test_secrets_come_from_the_environment_and_only_by_braces(tmp_path):
    spec = changed("source.options", {"password": "${SECRET}", "literal": "$${SECRET} $HOME ${} $$"})
    found = written(tmp_path, yaml.safe_dump(spec), {"SECRET": "a: ${b} 'x'"}).source.options
    assert found == {"password": "a: ${b} 'x'", "literal": "${SECRET} $HOME ${} $$"}
    with pytest.raises(PipelineError, match=r"uses \$\{SECRET\}, but the environment has no SECRET"):
        written(tmp_path, yaml.safe_dump(spec))


def test_only_true_and_false_are_booleans(tmp_path):
    text = json.dumps({key: value for key, value in PIPELINE.items() if key != "steps"})[:-1]
    join = "{relation: products, on: {id: no}, columns: [yes, off, truely, False_friend], options: {sorted: true}}"
    join_step = written(tmp_path, f"{text}, steps: [join: {join}]}}").steps[0].join
    assert join_step.on == {"id": "no"}
    assert join_step.columns == ("yes", "off", "truely", "False_friend")
    assert join_step.options == {"sorted": True}


def test_mappings_may_be_merged_and_own_keys_win(tmp_path):
    text = yaml.safe_dump({key: value for key, value in PIPELINE.items() if key not in ("sink", "unmatched")})
    text += "sink: &table {path: a, partition_by: [id]}\nunmatched: {<<: *table, path: b}\n"
    spec = written(tmp_path, text)
    assert (spec.unmatched.path, spec.unmatched.partition_by) == (tmp_path / "b", ("id",))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: a\nname: b", "the key 'name' appears twice"),
        ("a: {x: 1, y: 2, x: 3}", "the key 'x' appears twice"),
        ("", "has no settings"),
        ("- a", "has no settings"),
        ("a: 1\n---\nb: 2", "not YAML"),
        ("a:\n\tb: 1", "not YAML"),
        ("a: &a [*a]", "contains itself"),
        ("a: !!python/object/apply:os.getcwd []", "not YAML"),
        ("? [a, b]\n: 1", "not YAML"),
        ("1: 2", "Keys should be strings"),
    ],
)
def test_invalid_pipeline_files_are_refused(tmp_path, text, told):
    with pytest.raises(PipelineError, match=told):
        written(tmp_path, text)


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    for path, told in (
        (tmp_path, "directory"),
        (tmp_path / "none", "No such file"),
        (tmp_path / "bytes.yaml", "UTF-8"),
    ):
        with pytest.raises(PipelineError, match=told):
            read_spec(path)


@pytest.mark.parametrize(
    "place",
    [
        "source.path",
        "steps.0.join.relation",
        "steps.0.join.updates.path",
        "sink.path",
        "unmatched.path",
        "quarantine.path",
        "checkpoint",
        "overload.archive.path",
    ],
)
def test_a_path_with_a_scheme_is_refused_where_it_stands(place, tmp_path):
    content = copy.deepcopy(PIPELINE)
    content["steps"][0]["join"]["updates"] = dict(UPDATES)
    content["overload"] = {"latency": "30s", "archive": {"path": "archive"}}
    make_spec(content)
    *parents, last = [int(part) if part.isdigit() else part for part in place.split(".")]
    at = content
    for part in parents:
        at = at[part]
    at[last] = "s3a://bucket/x"
    message = refusal(content)
    assert f"  {place.replace('.0', '[0]')}: 's3a://bucket/x' has the scheme 's3a'" in message
    assert "mount the store" in message
    at[last] = (tmp_path / "y").as_uri()
    make_spec(content)


def test_a_path_with_a_scheme_is_refused_for_a_keyed_step_and_for_the_file():
    step = {"surrogate_key": {"relation": "gs://b/keys", "key": "id", "into": "n"}}
    assert "steps[0].surrogate_key.relation: 'gs://b/keys' has the scheme" in refusal(changed("steps.0", step))
    with pytest.raises(InvalidArgument, match=r"'s3://b/orders\.yaml' has the scheme 's3'"):
        read_spec("s3://b/orders.yaml")


def test_columns_are_a_name_names_or_new_names():
    for columns in ("price", ["price"], {"price": "unit_price"}):
        found = make_spec(changed("steps.0.join.columns", columns)).steps[0].join.columns
        assert (list(found) if isinstance(found, tuple) else found) == columns
    assert "names that begin with '__' are reserved" in refusal(changed("steps.0.join.columns", {"price": "__p"}))


@pytest.mark.parametrize(("how", "kind"), [("leftsemi", "semi"), ("left_anti", "anti"), ("INNER", "inner")])
def test_how_takes_sparks_names(how, kind):
    assert make_spec(changed("steps.0.join.how", how)).steps[0].join.how == kind


def test_a_left_join_is_one_that_keeps_rows_without_a_match():
    for how in ("left", "left_outer"):
        assert "steps[0].join.how: a join with how: left is one with" in refusal(changed("steps.0.join.how", how))
    assert "steps[0].join.how: how is 'outer'; give one of" in refusal(changed("steps.0.join.how", "outer"))


def test_what_is_no_yaml_is_said_with_file_and_line(tmp_path):
    for text, said in [
        ("name: orders\nsource:\n  path: a\n   format: csv\n", "line 4, column 10: mapping values are not allowed"),
        ("name: orders\nname: others\n", "line 2, column 1: the key 'name' appears twice"),
        ("name: [orders\nsource: x\n", r"line 2, column 7: expected ',' or ']', but got ':'"),
        ("name: a\x00b\n", "special characters are not allowed (at position 7)"),
    ]:
        with pytest.raises(PipelineError) as refused:
            written(tmp_path, text)
        assert str(refused.value).startswith(f"{tmp_path / 'pipeline.yaml'} is not YAML: ")
        assert said in str(refused.value)
        assert "unicode string" not in str(refused.value)


def test_an_invalid_setting_is_said_with_its_line(tmp_path):
    lines = yaml.safe_dump(PIPELINE, sort_keys=False).splitlines()
    on = next(i for i, line in enumerate(lines) if "'on': id" in line)
    lines[on] += "\n    hov: semi\n    unmatched: retri"
    lines[0] = "name: or/ders"
    lines += ["latency: ${SOON}"]
    with pytest.raises(PipelineError) as refused:
        written(tmp_path, "\n".join(lines), {"SOON": "soon"})
    said = str(refused.value)
    assert "  line 1, name: 'or/ders' is not a valid pipeline name" in said
    assert f"  line {on + 2}, steps[0].join.hov: unknown setting" in said
    assert f"  line {on + 3}, steps[0].join.unmatched: " in said
    assert f"  line {len(lines) + 2}, latency: '${{SOON}}' is not a duration" in said
    with pytest.raises(PipelineError, match=rf"has no SOON\. Set it.* in line {len(lines) + 2}\."):
        written(tmp_path, "\n".join(lines))
    del lines[on]
    with pytest.raises(PipelineError, match=rf"line {on - 1}, steps\[0\]\.join: a join needs `on`"):
        written(tmp_path, "\n".join(lines), {"SOON": "soon"})
