"""cpp/proxy/exchange/tunnel.h: both directions at once;
ends and deadlines are in tests/proxy/test_websocket.py.
"""

import threading

import pytest

from tests.proxy.test_websocket import switching, tunnelled


def pieces_of(data, rng):
    cuts = sorted(rng.sample(range(1, len(data)), 200))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@pytest.mark.parametrize("size", [1000, 3_000_000])
def test_both_directions_pass_at_once_and_unchanged(harness, rng, size):
    up, down = rng.randbytes(size), rng.randbytes(size)
    pieces = pieces_of(down, rng)
    got = []

    def then(connection):
        def pour():
            for piece in pieces:
                connection.send(piece)

        pouring = threading.Thread(target=pour)
        pouring.start()
        got.append(connection.read_exactly(size))
        pouring.join(30)

    _, client = tunnelled(harness, harness.worker(script=switching(then)))
    receiving = threading.Thread(target=lambda: got.append(client.read_exactly(size)))
    receiving.start()
    for piece in pieces_of(up, rng):
        client.send(piece)
    receiving.join(30)
    assert client.read_to_end() == b""
    assert sorted(got) == sorted([up, down])


def test_each_small_piece_passes_before_the_next_one_is_sent(harness):
    def then(connection):
        for _ in range(50):
            connection.send(connection.read_exactly(3))

    _, client = tunnelled(harness, harness.worker(script=switching(then)))
    for number in range(50):
        client.send(b"%03d" % number)
        assert client.read_exactly(3) == b"%03d" % number
