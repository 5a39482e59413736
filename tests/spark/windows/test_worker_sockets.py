"""Sockets between workers: strangers, silent ones and floods of them neither hang a window join nor reach it."""

import multiprocessing
import os
import socket
import time
from threading import Thread
from unittest.mock import patch

import pytest

pytest.importorskip("pyspark", reason="pip install 'semistream[spark]' to run these")

from semistream.spark.windows import worker_sockets
from semistream.spark.windows.worker_homes import JoinHomes
from semistream.spark.windows.worker_sockets import SERVED, WorkerListener, WorkerSocket
from tests.spark.windows.state_store import StateStore
from tests.spark.windows.test_window_state import close, entries, plan_of, step, straight

pytestmark = pytest.mark.skipif(not SERVED, reason="abstract sockets are Linux's")
SECRET = b"of these tests"


def connected(address):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(5)
    client.connect(address)
    return client


@pytest.fixture
def address():
    return f"\0semistream-test-{os.getpid()}-{time.monotonic_ns()}"


@pytest.fixture
def echoing(address):
    """The address of a listener that sends back what it gets, or nothing if it is asked to fail."""

    def answer(peer):
        content = peer.receive()
        if content == b"fail":
            raise RuntimeError("as asked")
        peer.send(content)

    listener = WorkerListener(address, SECRET, answer)
    yield address
    listener.close()


def ask(address, content=b"hello", secret=SECRET):
    with WorkerSocket.connect(address, secret) as peer:
        peer.send(content)
        return peer.receive()


@pytest.mark.parametrize("behind", ["silent", "garbage", "many"])
def test_strangers_on_its_socket_do_not_hold_up_a_join(behind):
    """Before there were timeouts, the first silent client kept every worker from the operator for ever."""
    plan, store, workers = plan_of(), StateStore(), [JoinHomes(), JoinHomes()]
    everything, expected = list(entries(3, 4, 20)), list(straight(plan, 3, 4, 20))
    assert step(workers[0], plan, store, *everything[0])[0] == expected[0]
    home = next(iter(workers[0]._homes))
    strangers = [connected(home) for _ in range({"silent": 1, "garbage": 1, "many": 24}[behind])]
    if behind == "garbage":
        strangers[0].sendall(os.urandom(1 << 16))
    began = time.monotonic()
    for number in (1, 2, 3):
        found, outcome = step(workers[number % 2], plan, store, *everything[number])
        assert (sorted(found), outcome.restored) == (sorted(expected[number]), False)
    assert time.monotonic() - began < worker_sockets._PROOF_S / 2
    for stranger in strangers:
        stranger.close()
    close(workers)


def test_a_flood_of_connections_costs_the_operator_but_not_the_results():
    plan, store, workers = plan_of(), StateStore(), [JoinHomes(), JoinHomes()]
    everything, expected = list(entries(3, 2, 20)), list(straight(plan, 3, 2, 20))
    step(workers[0], plan, store, *everything[0])
    strangers = [connected(next(iter(workers[0]._homes))) for _ in range(100)]
    time.sleep(0.1)
    found, outcome = step(workers[1], plan, store, *everything[1])
    assert (sorted(found), outcome.restored) == (sorted(expected[1]), True)
    for stranger in strangers:
        stranger.close()
    close(workers)


def test_a_silent_client_is_dropped_and_leaves_its_place(echoing):
    with patch.object(worker_sockets, "_PROOF_S", 0.2):
        strangers = [connected(echoing) for _ in range(worker_sockets._MOST_CLIENTS)]
        with pytest.raises(OSError):  # noqa: PT011
            ask(echoing)
        for stranger in strangers:
            assert len(stranger.recv(100)) == 32
            assert stranger.recv(1) == b""  # closed
            stranger.close()
    assert ask(echoing) == b"hello"


def test_a_silent_listener_does_not_hold_up_the_worker_that_asks(address):
    silent = socket.socket(socket.AF_UNIX)
    silent.bind(address)
    silent.listen()
    began = time.monotonic()
    with patch.object(worker_sockets, "_PROOF_S", 0.2), pytest.raises(TimeoutError):
        ask(address)
    assert time.monotonic() - began < 2
    silent.close()


def test_only_those_who_know_the_secret_are_answered(echoing):
    assert ask(echoing, b"") == b""
    assert ask(echoing, bytes(3_000_000)) == bytes(3_000_000)
    with pytest.raises((PermissionError, ConnectionError)):
        ask(echoing, secret=b"another")
    client = connected(echoing)
    challenge = client.recv(32)
    client.sendall(challenge)
    client.sendall(client.recv(32))  # the listener's own proof, sent back
    assert client.recv(1) == b""
    client.close()


def test_a_failing_answer_closes_its_connection_and_the_next_one_is_answered(echoing):
    with pytest.raises(ConnectionError):
        ask(echoing, b"fail")
    assert ask(echoing) == b"hello"


def test_what_is_announced_is_not_allocated(address):
    def announce(peer):
        peer._socket.sendall((1 << 60).to_bytes(8, "big"))

    listener = WorkerListener(address, SECRET, announce)
    with WorkerSocket.connect(address, SECRET) as peer, pytest.raises(ConnectionError, match="the limit is"):
        peer.receive()
    listener.close()


def test_several_are_answered_at_once(address):
    waiting = []

    def answer(peer):
        waiting.append(peer.receive())
        while len(waiting) < 4:
            time.sleep(0.01)
        peer.send(b"together")

    listener, got = WorkerListener(address, SECRET, answer), []
    asking = [Thread(target=lambda: got.append(ask(address))) for _ in range(4)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(10)
    assert got == [b"together"] * 4
    listener.close()


def as_another_user(act, *arguments):
    """Fork, become another user, send what ``act`` returns, and wait until the pipe is closed."""
    theirs, ours = multiprocessing.Pipe()
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        ours.send(act(*arguments))
        ours.poll(30)
        os._exit(0)
    return theirs, child


def _bytes_heard(address):
    with connected(address) as client:
        return len(client.recv(32))


def _listen(address):
    global listening  # noqa: PLW0603
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
def test_another_user_is_neither_heard_nor_asked(echoing, address):
    client, first = as_another_user(_bytes_heard, echoing)
    assert client.recv() == 0
    listener, second = as_another_user(_listen, address + "x")
    listener.recv()
    with pytest.raises(PermissionError, match="another user"):
        ask(address + "x")
    for pipe, child in ((client, first), (listener, second)):
        pipe.send(None)
        os.waitpid(child, 0)
