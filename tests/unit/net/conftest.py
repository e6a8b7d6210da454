"""Fixtures of the net room."""

import socket

import pytest

from tests.fakes.wire import Wire
from vllm_router import _core_testing as testing


@pytest.fixture
def pair():
    """Ours, in C++, and the peer's, in Python."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
    ours.setblocking(False)
    peer = Wire(theirs)
    wrapped = testing.Socket(ours.detach())
    yield wrapped, peer
    wrapped.close()
    peer.close()
