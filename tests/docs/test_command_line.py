"""The command line of benchmarks and experiments."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.harness.command_line import CommandLine, Runs

LINE = CommandLine("experiments", "Run them.", ("first", "second"), most_scale=1, out=Path("out"))


def test_the_named_or_all() -> None:
    assert LINE.read([]) == Runs(("first", "second"), 1.0, Path("out"))
    assert LINE.read(["second", "--scale", "0.1", "--out", "there"]) == Runs(("second",), 0.1, Path("there"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["third", "first"], "unknown name third; give any of first, second"),
        (["--scale", "0"], "--scale is 0.0; give more than 0, at most 1"),
        (["--scale", "1.5"], "--scale is 1.5; give more than 0, at most 1"),
        (["--scale", "nan"], "--scale is nan"),
    ],
)
def test_wrong_arguments_end_with_the_valid_choices(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        LINE.read(words)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
