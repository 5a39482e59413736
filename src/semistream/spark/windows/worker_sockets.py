"""Messages between workers of one user that know one secret, over an abstract Unix socket.

Abstract sockets are not in the file system and end with their process, but every user of the machine can see their
names and connect, or listen under a name before its owner does. So both sides ask the kernel for the other's user, and
prove in turn that they know the secret, before anything else is read. No step of this waits long for the other side.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import BoundedSemaphore, Thread
from time import monotonic
from typing import Self

_LOG = logging.getLogger(__name__)
SERVED = sys.platform == "linux"
"""True if there are abstract sockets."""
_PROOF_S = 10.0  # for a connection and the proofs of both sides
_STALLED_S = 600.0  # for a worker to take what is sent to it, or to send what it has begun
_MOST_CLIENTS = 32  # connections at a time; further ones are closed
_NONCE_BYTES, _PROOF_BYTES = 32, 32
_LENGTH = struct.Struct("!Q")
_MOST_BYTES = 1 << 36  # of a message; more than any worker has memory for
_PIECE_BYTES = 1 << 20


class WorkerSocket:
    """Connection to another worker, which has proven that it knows the secret. Messages are bytes."""

    def __init__(self, connected: socket.socket, patience_s: float | None = None) -> None:
        self._socket, self._patience_s = connected, patience_s

    @classmethod
    def connect(cls, address: str, secret: bytes) -> Self:
        """Connect to the worker that listens at an address; raise `OSError` if it is not one of ours."""
        connected = socket.socket(socket.AF_UNIX)
        try:
            connected.settimeout(_PROOF_S)
            connected.connect(address)
            return cls(connected)._proven(secret, b"asks", b"answers")
        except BaseException:
            connected.close()
            raise

    @classmethod
    def accepted(cls, connected: socket.socket, secret: bytes) -> Self:
        """Check a worker that has connected; raise `OSError` if it is not one of ours."""
        return cls(connected, _STALLED_S)._proven(secret, b"answers", b"asks")

    def _proven(self, secret: bytes, own: bytes, other: bytes) -> Self:
        """Exchange random numbers, then each side's proof; the roles differ, so that no proof can be sent back."""
        if peer_user(self._socket) != os.getuid():
            raise PermissionError("the other side belongs to another user")
        deadline, given = monotonic() + _PROOF_S, secrets.token_bytes(_NONCE_BYTES)
        self._socket.settimeout(_PROOF_S)
        self._socket.sendall(given)
        asked = self._read(_NONCE_BYTES, deadline)
        self._socket.sendall(hmac.digest(secret, own + asked + given, "sha256"))
        wanted = hmac.digest(secret, other + given + asked, "sha256")
        if not hmac.compare_digest(self._read(_PROOF_BYTES, deadline), wanted):
            raise PermissionError("the other side does not know the secret")
        return self

    def send(self, content: bytes) -> None:
        """Send a message."""
        self._socket.settimeout(_STALLED_S)
        self._socket.sendall(_LENGTH.pack(len(content)))
        if content:  # after an empty message, the other side may have closed
            self._socket.sendall(content)

    def receive(self) -> bytes:
        """Receive a message; raise `OSError` if the other side has died. One that answers may take long over it."""
        (nbytes,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if nbytes > _MOST_BYTES:
            raise ConnectionError(f"a message of {nbytes} bytes was announced; the limit is {_MOST_BYTES}")
        return self._read(nbytes)

    def _read(self, nbytes: int, deadline: float | None = None) -> bytes:
        content = bytearray()  # grows with what has come, whatever was announced
        while len(content) < nbytes:
            self._socket.settimeout(self._patience_s if deadline is None else max(deadline - monotonic(), 0.001))
            piece = self._socket.recv(min(nbytes - len(content), _PIECE_BYTES))
            if not piece:
                raise ConnectionError("the other side has closed the connection")
            content += piece
        return bytes(content)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class WorkerListener:
    """Listens at an address, and calls ``answer`` for each worker of ours that connects, in a thread of its own.

    Raise `OSError` if the address is in use.
    """

    def __init__(self, address: str, secret: bytes, answer: Callable[[WorkerSocket], None]) -> None:
        self._secret, self._answer = secret, answer
        self._free = BoundedSemaphore(_MOST_CLIENTS)
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.bind(address)
            self._socket.listen()
        except OSError:
            self._socket.close()
            raise
        self._listening = Thread(target=self._listen, daemon=True)
        self._listening.start()

    def close(self) -> None:
        """Stop listening and free the address; workers that are being answered are answered to the end."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the listening thread, which keeps the address in use
        self._listening.join(_PROOF_S)
        self._socket.close()

    def _listen(self) -> None:
        with self._socket as listening:
            while True:
                try:
                    connected = listening.accept()[0]
                except OSError:
                    return  # closed, or no descriptor is left: workers then rebuild the operator
                if peer_user(connected) != os.getuid() or not self._free.acquire(blocking=False):
                    connected.close()
                    continue
                try:
                    Thread(target=self._serve, args=(connected,), daemon=True).start()
                except RuntimeError:  # no thread is left
                    self._free.release()
                    connected.close()

    def _serve(self, connected: socket.socket) -> None:
        with connected:
            try:
                # Fails if the asking worker has died, takes too long, or does not know the secret.
                with suppress(OSError):
                    self._answer(WorkerSocket.accepted(connected, self._secret))
            except Exception:
                _LOG.warning("a request of another worker could not be answered", exc_info=True)
            finally:
                self._free.release()


def peer_user(connected: socket.socket) -> int:
    """Return the number of the user on the other side of a Unix socket, as the kernel knows it."""
    content = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", content)[1])
