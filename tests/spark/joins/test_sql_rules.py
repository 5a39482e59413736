"""Joins keep the rules of Spark's SQL, or refuse: names in any case, collations, padded CHARs, types Arrow lacks."""

import pyarrow as pa
import pytest

from semistream.errors import InvalidArgument, KeyTypeError
from semistream.relation import Relation
from semistream.spark import build_relation, explain, join

pytestmark = pytest.mark.spark


@pytest.fixture
def relation(tmp_path):
    return Relation.build(pa.table({"Id": ["ab", "abc"], "V": [1, 2]}), tmp_path / "r", key="Id")


@pytest.fixture
def words(spark):
    return spark.createDataFrame([("ABC",), ("ab",), ("ab ",)], "word string")


@pytest.fixture
def chars(spark, tmp_path):
    """Two tables with columns of type CHAR, as Spark's catalog has them."""
    for name, length, values in (("five", 5, "('ab'), ('xyz'), ('vwxyz')"), ("three", 3, "('ab'), ('xyz')")):
        spark.sql(f"CREATE TABLE {name} (c char({length})) USING parquet LOCATION '{tmp_path}/{name}'")
        spark.sql(f"INSERT INTO {name} VALUES {values}")
    yield spark.table("five"), spark.table("three")
    for name in ("five", "three"):
        spark.sql(f"DROP TABLE {name}")


def test_a_key_with_a_collation_is_refused(words, relation, tmp_path):
    lower = words.selectExpr("word COLLATE UTF8_LCASE AS word")
    for terms in ({"on": {"word": "Id"}}, {"where": "s.word = r.Id"}):
        with pytest.raises(KeyTypeError, match=r"'word' has the collation UTF8_LCASE.*COLLATE UTF8_BINARY"):
            join(lower, relation, memory="1MB", **terms)
    with pytest.raises(KeyTypeError, match="collation"):
        build_relation(lower, tmp_path / "lower", key="word")
    by_hand = lower.selectExpr("word", "word COLLATE UTF8_BINARY AS bytes")
    joined = join(by_hand, relation, on={"bytes": "Id"}, memory="1MB")
    assert joined.dtypes[0] == ("word", "string collate UTF8_LCASE")  # a column that is no key keeps its collation
    assert [row.word for row in joined.collect()] == ["ab"]


def test_chars_of_two_lengths_are_refused_and_the_advice_gives_what_spark_gives(spark, chars, tmp_path):
    five, three = chars
    relation = build_relation(three, tmp_path / "chars", key="c")
    assert sorted(row.c for row in join(three, relation, on="c", memory="1MB").collect()) == ["ab ", "xyz"]
    with pytest.raises(KeyTypeError, match=r"'c' is char\(5\) and column 'c' of R char\(3\)"):
        join(five, relation, on="c", memory="1MB")
    expected = spark.sql("SELECT five.c FROM five JOIN three ON five.c = three.c").collect()
    cast = five.selectExpr("c AS five", "CAST(rpad(rtrim(c), 3, ' ') AS string) AS c").where("length(rtrim(five)) <= 3")
    assert sorted(row.five for row in join(cast, relation, on="c", memory="1MB").collect()) == sorted(
        row.c for row in expected
    )


def test_names_in_other_letters_are_found_as_spark_finds_them(spark, words, relation):
    joined = join(words, relation, on={"WORD": "id"}, columns="v", memory="1MB")
    assert joined.columns == ["word", "V"]
    assert [row.V for row in joined.collect()] == [1]
    assert "1 MB" in str(explain(words, relation, on={"WORD": "iD"}, columns={"v": "x"}, memory="1MB"))
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(Exception, match="has no column 'id'"):
            join(words, relation, on={"word": "id"}, memory="1MB")
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_names_that_spark_takes_for_one_are_refused(words, relation):
    stream = words.selectExpr("word", "1 AS v")
    with pytest.raises(InvalidArgument, match=r"columns 'v' and 'V'.*columns=\{"):
        join(stream, relation, on={"word": "Id"}, memory="1MB")
    joined = join(stream, relation, on={"word": "Id"}, columns={"V": "V_right"}, memory="1MB")
    assert joined.select("v", "v_RIGHT").collect() == [(1, 1)]


@pytest.mark.parametrize("interval", ["INTERVAL '1-2' YEAR TO MONTH", "make_interval(1, 2)"])
def test_a_type_that_arrow_lacks_is_refused_by_column(words, relation, tmp_path, interval):
    stream = words.selectExpr("word", f"{interval} AS i")
    with pytest.raises(InvalidArgument, match=r"column 'i' has type interval.*Leave it out, or cast it"):
        join(stream, relation, on={"word": "Id"}, memory="1MB")
    with pytest.raises(InvalidArgument, match="column 'i' has type interval"):
        build_relation(stream, tmp_path / "i", key="word")
    cast = stream.withColumn("i", stream["i"].cast("string"))
    assert join(cast, relation, on={"word": "Id"}, memory="1MB").count() == 1
