"""Workers run the driver's interpreter unless the user chose another one."""

import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark", reason="pip install 'semistream[spark]' to run these")

from semistream.spark.session import choose_interpreter, worker_interpreter


def session(python_exec="python3", **settings):
    return SimpleNamespace(sparkContext=SimpleNamespace(pythonExec=python_exec, master="local[2]"), conf=settings)


@pytest.fixture
def no_variable(monkeypatch):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)


@pytest.mark.usefixtures("no_variable")
def test_it_is_the_drivers_when_the_user_chose_none():
    assert choose_interpreter(session()) == sys.executable


@pytest.mark.usefixtures("no_variable")
def test_the_setting_of_the_session_is_respected():
    assert choose_interpreter(session(**{"spark.pyspark.python": "/opt/python"})) == "/opt/python"


def test_the_variable_comes_first(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    assert choose_interpreter(session(**{"spark.pyspark.python": "/opt/python"})) == "python3"


@pytest.mark.usefixtures("no_variable")
def test_a_choice_made_before_the_session_started_is_respected():
    assert choose_interpreter(session("/opt/other")) == "/opt/other"


@pytest.mark.usefixtures("no_variable")
def test_functions_outside_the_block_are_not_touched():
    running = session()
    with worker_interpreter(running):
        assert running.sparkContext.pythonExec == sys.executable
    assert running.sparkContext.pythonExec == "python3"
