"""Messages as rows, whatever their content; no broker is needed."""

import json

import pytest

from semistream.pipelines.spec.source_spec import KafkaSource
from semistream.pipelines.task.batch_task import RAW
from semistream.spark.sources.kafka import TopicSource
from tests.spark.pipelines.warehouse import SCHEMA

pytestmark = pytest.mark.spark

_BEGUN = '{"id": 1, "product": 2, "customer": "c", "quantity": 1'
POISON = {
    "json": [
        "[" * 3000, "[" * 100_000, f'{_BEGUN}, "amount": {"9" * 5000}}}', '{"x":' * 3000 + "1" + "}" * 3000,
        f'{_BEGUN}, "other": {"[" * 3000}{"]" * 3000}}}', '{"' + "k" * 100_000 + '": 1}', "\x00" * 5, "y" * 5_000_000,
    ],
    "csv": ["," * 30_000, '1,2,"' + "x" * 100_000, "9" * 5000 + ",2,c,1,1.0", "\x00\x00", '1,2,"a\\",1,1', "\\", "1,2"],
}  # fmt: skip


@pytest.mark.parametrize("value", ["json", "csv"])
def test_messages_beyond_every_limit_of_a_parser_are_told_as_they_were(spark, value):
    source = TopicSource(KafkaSource(format="kafka", servers="none", topic="t", schema=SCHEMA, value=value))
    good = [{"id": i, "product": 2, "customer": "c", "quantity": 1, "amount": 1.5} for i in range(len(POISON[value]))]
    texts = [json.dumps(row) if value == "json" else ",".join(map(str, row.values())) for row in good]
    sent = [text for pair in zip(texts, POISON[value], strict=True) for text in pair]
    messages = spark.createDataFrame(
        [(None, bytearray(text.encode()), 0, offset) for offset, text in enumerate(sent)],
        "key binary, value binary, partition int, offset bigint",
    ).coalesce(1)
    found = source.rows(messages).toArrow().to_pylist()
    assert [{name: row[name] for name in SCHEMA} for row in found[::2]] == good
    assert [row[RAW] for row in found] == [text for raw in POISON[value] for text in (None, raw)]
