"""cpp/redis/redis_pool.h: what all connections share."""

import pytest

from tests.fakes.wire import eventually
from vllm_router import _core_testing as testing


@pytest.mark.parametrize(("connections", "threads", "each"), [(8, 1, 8), (8, 3, 2), (2, 4, 1), (1, 0, 1)])
def test_every_thread_has_a_connection(connections, threads, each):
    assert testing.redis_connections_of(connections, threads) == each


def test_connections_are_active_or_idle(open_link, fake):
    fake.replies["GET"] = None
    link = open_link(fake.url, connections=2)
    call = link.send([["GET", "a"]], 1)
    fake.wait_for("GET")
    assert (link.stats()["active"], link.stats()["idle"]) == (1, 1)
    fake.connections[0].sendall(b"+OK\r\n")
    fake.connections[1].sendall(b"")
    link.stop()
    assert (link.stats()["active"], link.stats()["idle"]) == (0, 0)
    call.get()


def test_errors_are_counted_by_type_and_logged_once(open_link, fake, capfd):
    fake.replies["SET"] = b"-OOM command not allowed\r\n"
    link = open_link(fake.url)
    for _ in range(3):
        assert link.send([["SET", "a", "1"]], 1).get()[0][0] == "error"
    assert link.stats()["errors"] == {"connection": 0, "timeout": 0, "other": 3}
    assert not link.stats()["fallback"]
    link.stop()
    log = capfd.readouterr().err
    assert log.count("replied OOM: raise maxmemory of Redis or set an eviction policy") == 1


def test_an_error_in_a_transaction_counts(open_link, server):
    link = open_link(server.url)
    link.send([["SET", "a", "1"]], 1).get()
    replies = link.send([["MULTI"], ["ZADD", "a", "1", "b"], ["EXEC"]], 3).get()
    assert replies[2][0][0] == "error"
    eventually(lambda: link.stats()["errors"]["other"] == 1)
