"""cpp/redis/redis_link.h: connections that are opened, used and probed."""

from tests.fakes.redis_server import cut, hang_up
from tests.fakes.wire import eventually


def test_the_connection_with_the_fewest_commands_gets_the_next(open_link, fake):
    fake.replies["GET"] = None
    link = open_link(fake.url, connections=3)
    for n in range(9):
        link.send([["GET", str(n)]], 1)
    fake.wait_for("GET", 9)
    assert link.stats()["active"] == 3
    # The first connection hangs; what comes next goes to the others.
    fake.replies["GET"] = b"+OK\r\n"
    assert link.send([["GET", "a"]], 1) is not None


def test_a_link_that_is_lost_is_opened_again(open_link, fake):
    link = open_link(fake.url, connections=2)
    for connection in list(fake.connections):
        hang_up(connection)
    fake.wait_for("PING", 4)
    eventually(lambda: link.stats()["idle"] == 2)
    assert link.stats()["errors"] == {"connection": 0, "timeout": 0, "other": 0}


def test_no_connection_means_not_now(open_link, fake):
    fake.replies["PING"] = None
    link = open_link(fake.url, waits=False)
    fake.wait_for("PING")
    assert link.send([["GET", "a"]], 1) is None


def test_two_failures_end_it_and_a_probe_brings_it_back(open_link, fake):
    fake.replies["GET"] = None
    link = open_link(fake.url, command_timeout_ms=50)
    first = link.send([["GET", "a"]], 1)
    assert first.get() == "timeout: does not reply within 50 ms"
    assert not link.stats()["fallback"]
    eventually(lambda: link.stats()["idle"] == 1)
    second = link.send([["GET", "a"]], 1)
    second.get()
    assert link.stats()["fallback"]
    assert link.send([["GET", "a"]], 1) is None
    fake.replies["GET"] = b"+OK\r\n"
    eventually(lambda: link.stats()["idle"] == 1)
    assert link.send([["GET", "a"]], 1).get() == [("status", b"OK")]


def test_what_redis_refuses_its_caller_alone_says_nothing_of_the_others(open_link, fake):
    """A user may have no right to run scripts, and all others."""
    fake.replies["EVAL"] = b"-NOPERM this user has no permissions\r\n"
    link = open_link(fake.url, failures=1)
    replies = link.send([["EVAL", "a"]], 1, to_caller=True).get()
    assert replies[0][0] == "error"
    assert not link.stats()["fallback"]
    assert link.stats()["errors"] == {"connection": 0, "timeout": 0, "other": 0}
    link.send([["EVAL", "a"]], 1).get()
    assert link.stats()["fallback"]


def test_a_command_that_works_forgives_an_attempt_that_failed(open_link, fake):
    link = open_link(fake.url, command_timeout_ms=50)
    fake.replies["PING"] = b"-LOADING x\r\n"
    cut(fake.connections[0])
    eventually(lambda: link.stats()["errors"]["other"] == 1)
    fake.replies["PING"] = b"+PONG\r\n"
    eventually(lambda: link.stats()["idle"] == 1)
    assert link.send([["GET", "a"]], 1).get() == [("status", b"OK")]
    fake.replies["GET"] = None
    assert link.send([["GET", "a"]], 1).get() == "timeout: does not reply within 50 ms"
    assert not link.stats()["fallback"]


def test_a_probe_writes_and_reads_a_key(open_link, fake):
    fake.replies["PING"] = b"-LOADING x\r\n"
    link = open_link(fake.url, waits=False)
    eventually(lambda: link.stats()["fallback"])
    fake.replies["PING"] = b"+PONG\r\n"
    eventually(lambda: link.stats()["up"])
    assert fake.commands[-3:] == [
        ["SET", "test:~probe", "1", "EX", "60"],
        ["GET", "test:~probe"],
        ["DEL", "test:~probe"],
    ]


def test_a_replica_that_takes_no_writes_can_be_read(open_link, fake):
    fake.replies["PING"] = b"-LOADING x\r\n"
    link = open_link(fake.url, waits=False)
    eventually(lambda: link.stats()["fallback"])
    fake.replies.update(
        {"PING": b"+PONG\r\n", "SET": b"-READONLY x\r\n", "GET": b"$-1\r\n", "DEL": b"-READONLY x\r\n"}
    )
    eventually(lambda: link.stats()["up"])


def test_connections_to_a_replica_are_opened_anew_once_they_have_their_replies(open_link, fake):
    """After a failover the name means another server by now."""
    fake.replies.update({"SET": b"-READONLY You can't write against a read only replica.\r\n", "GET": None})
    link = open_link(fake.url, connections=2, command_timeout_ms=30_000)
    waits = link.send([["GET", "a"]], 1)
    fake.wait_for("GET")
    busy = fake.connection_of("GET")
    assert link.send([["SET", "a", "1"]], 1).get()[0][0] == "error"
    fake.wait_for("PING", 3)  # the idle one
    eventually(lambda: link.stats()["idle"] == 1)
    fake.replies["GET"] = b"+OK\r\n"
    for _ in range(4):
        assert link.send([["GET", "b"]], 1).get() == [("status", b"OK")]
        assert fake.connection_of("GET") is not busy
    busy.sendall(b"+LATE\r\n")
    assert waits.get() == [("status", b"LATE")]
    fake.wait_for("PING", 4)
    eventually(lambda: link.stats()["idle"] == 2)
    assert link.stats()["errors"] == {"connection": 0, "timeout": 0, "other": 1}
    assert not link.stats()["fallback"]


def test_a_cluster_stays_down(open_link, fake, capfd):
    fake.replies["GET"] = b"-MOVED 3999 127.0.0.1:6381\r\n"
    link = open_link(fake.url)
    for _ in range(2):
        link.send([["GET", "a"]], 1).get()
    assert link.stats()["fallback"]
    fake.replies["SET"] = b"-MOVED 3999 127.0.0.1:6381\r\n"
    fake.wait_for("SET", 1)
    assert link.stats()["fallback"]
    link.stop()
    assert (
        "replied MOVED: name an endpoint that is not a cluster's, or a cluster proxy"
        in capfd.readouterr().err
    )


def test_a_server_that_dies_and_returns(open_link, server):
    link = open_link(server.url, connections=2)
    assert link.send([["SET", "a", "1"], ["GET", "a"]], 2).get() == [("status", b"OK"), b"1"]
    server.kill()
    eventually(lambda: link.stats()["fallback"])
    assert link.send([["GET", "a"]], 1) is None
    assert server.start()
    eventually(lambda: link.stats()["idle"] == 2)
    assert link.send([["GET", "a"]], 1).get() == [None]
