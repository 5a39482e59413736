"""window_join() on Spark: exact beside DuckDB, the same however it is cut and restarted, and nothing lost unseen."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from semistream.spark import repair_window_join
from semistream.windows.streams.event_time import SIDES
from tests.spark.windows.window_streams import TwoStreams, joined, results, run

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("rocksdb")]
WINDOW_S = {"left": 40, "right": 15}
WINDOW = {side: f"{seconds} seconds" for side, seconds in WINDOW_S.items()}


@pytest.fixture
def streams(tmp_path):
    made = TwoStreams(tmp_path, seed=5)
    for _ in range(2):
        made.grow()
    return made


def test_it_is_exact_while_the_memory_suffices(spark, streams, tmp_path):
    streams.end()
    run(joined(tmp_path, spark, window=WINDOW, memory=None), tmp_path, "exact")
    found = spark.read.parquet(str(tmp_path / "exact"))
    assert found.columns == ["name", "n", "at", "left", "at_right", "right"]
    assert results(spark, tmp_path, "exact") == streams.exact(WINDOW_S)
    row = found.first()
    tables = {side: pa.concat_tables(streams.tables[side]).to_pylist() for side in SIDES}
    own = {side: next(each for each in tables[side] if each[side] == row[side]) for side in SIDES}
    assert (row["name"], row["n"]) == (own["left"]["name"], own["left"]["n"])
    assert row["at"].timestamp() == own["left"]["at"].timestamp()
    assert row["at_right"].timestamp() == own["right"]["at"].timestamp()


def test_less_memory_keeps_the_same_rows_however_it_is_cut_and_repair_gives_the_others(spark, streams, tmp_path):
    def start(name, files):
        df = joined(tmp_path, spark, files=files, window=WINDOW, memory=40, archive=tmp_path / f"{name}-archive")
        return run(df, tmp_path, name)

    before = start("restarted", 2)
    streams.grow()
    streams.end()
    after = start("restarted", 2)
    whole = start("whole", 9)
    kept, exact = results(spark, tmp_path, "restarted"), streams.exact(WINDOW_S)
    assert kept == results(spark, tmp_path, "whole")
    assert kept < exact
    repaired = repair_window_join(tmp_path / "restarted-archive")
    missing = [(row["left"], row["right"]) for batch in repaired for row in batch.to_pylist()]
    kept.update(missing)
    assert missing
    assert kept == exact
    for metrics in (before + after, whole):
        held = sum(getattr(metrics[-1], f"{side}_{count}") for side in SIDES for count in ("in_memory", "waiting"))
        gone = sum(
            getattr(each, f"{side}_{count}")
            for each in metrics
            for side in SIDES
            for count in ("late", "null_keys", "expired", "evicted")
        )
        rows = sum(len(table) for side in SIDES for table in streams.tables[side])
        assert sum(each.rows_in for each in metrics) == rows == gone + held
        assert sum(each.results for each in metrics) == len(results(spark, tmp_path, "whole"))
        assert all(each.in_memory <= 40 for each in metrics)
        assert all(each.partitions == 2 for each in metrics)
        assert sum(each.evicted for each in metrics) > 0
        assert sum(each.late for each in metrics) == 0
        assert sum(each.left_null_keys for each in metrics) == sum(t["name"].null_count for t in streams.tables["left"])
        assert 0.3 * len(missing) < metrics[-1].missing_estimate < 3 * len(missing)
    assert whole[-1].state_bytes > 0
    streams.grow()
    with pytest.raises(Exception, match="memory was 20, is 30"):  # it goes on with other arguments
        run(joined(tmp_path, spark, window=WINDOW, memory=60), tmp_path, "whole")


def test_rows_that_are_late_or_have_no_time_are_counted_and_handed_out(spark, streams, tmp_path):
    streams.grow()  # its watermark is known in the micro-batch after it
    streams.write("left", ["k1", "k1"], [0, 0], [3.0, 350.0])
    streams.write("right", ["k1"], [0], [350.0])
    table = streams.tables["left"][0]
    untimed = table.slice(0, 2).set_column(2, "at", pa.nulls(2, table.schema.field("at").type))
    for side in SIDES:
        rows = untimed if side == "left" else untimed.rename_columns(["name", "n", "at", "right"])
        pq.write_table(rows, tmp_path / side / "999.parquet")
    df = joined(tmp_path, spark, window=WINDOW, memory=None, late=tmp_path / "late")
    metrics = run(df, tmp_path, "joined")
    assert sum(each.left_late for each in metrics) == 3
    assert sum(each.right_late for each in metrics) == 2
    found = {
        side: pa.concat_tables([pq.read_table(file) for file in (tmp_path / "late").glob(f"*/{side}/*.parquet")])
        for side in SIDES
    }
    late = found["left"].filter(pa.compute.is_valid(found["left"]["at"])).to_pylist()
    assert [(row["name"], row["left"]) for row in late] == [("k1", 3000)]
    assert found["left"]["at"].null_count == found["right"]["at"].null_count == 2


def test_a_silent_stream_stops_the_query_before_the_memory_is_full(spark, tmp_path):
    streams = TwoStreams(tmp_path, seed=6)
    for number in range(3):
        streams.write("left", ["k1"] * 50, [0] * 50, [number] * 50)
    streams.write("right", ["k1"], [0], [0])
    with pytest.raises(Exception, match="the right stream is silent"):
        run(joined(tmp_path, spark, window=WINDOW, memory=None, max_waiting=100), tmp_path, "joined")
