"""cpp/redis/redis_connection.h: how it opens, and everything that ends it."""

import socket
import time

import pytest

from tests.fakes.authority import Authority
from tests.fakes.redis_server import RedisServer, hang_up
from tests.fakes.wire import eventually


def test_it_logs_in_with_one_write(open_link, fake):
    open_link(fake.url.replace("redis://", "redis://us%65r:p%40ss@") + "/3")
    assert fake.commands == [
        ["AUTH", "user", "p@ss"],
        ["SELECT", "3"],
        ["CLIENT", "SETNAME", "vllm-router"],
        ["PING"],
    ]


def test_a_password_without_a_user_is_of_the_default_user(open_link, fake):
    open_link(fake.url.replace("redis://", "redis://:p@"))
    assert fake.commands[0] == ["AUTH", "p"]


def test_a_proxy_without_the_command_client_will_do(open_link, fake):
    fake.replies["CLIENT"] = b"-ERR unknown command 'CLIENT'\r\n"
    open_link(fake.url)


@pytest.mark.parametrize(
    ("name", "reply", "kind", "reason"),
    [
        ("PING", b"-NOAUTH Authentication required.\r\n", "other", "replied NOAUTH: check the user and the"),
        ("AUTH", b"-WRONGPASS invalid\r\n", "other", "replied WRONGPASS: check the user and the password of"),
        (
            "AUTH",
            b"-ERR unknown command 'AUTH', beginning with: 'SECRET'\r\n",
            "other",
            "replied ERR (to AUTH)",
        ),
        (
            "SELECT",
            b"-ERR DB index is out of range\r\n",
            "other",
            "check the database at the end of the Redis",
        ),
        ("PING", b"-LOADING Redis is loading\r\n", "other", "replied LOADING: it loads its data (to PING)"),
        ("PING", b"HTTP/1.1 400 Bad Request\r\n\r\n", "other", "sent what is not RESP2"),
        ("PING", b"+PONG\r\n+AGAIN\r\n", "other", "sent a reply without a command"),
        ("PING", b"+" + b"x" * 70_000, "other", "sent a line of more than 65536 bytes"),
        ("AUTH", hang_up, "connection", "closed the connection"),
        ("PING", None, "timeout", "does not let the router log in within 100 ms"),
    ],
)
def test_a_redis_that_lets_nobody_in_is_down(open_link, fake, capfd, name, reply, kind, reason):
    fake.replies[name] = reply
    link = open_link(
        fake.url.replace("redis://", "redis://:SECRET@") + "/1", waits=False, connect_timeout_ms=100
    )
    eventually(lambda: link.stats()["fallback"])
    assert link.stats()["errors"][kind] >= 1
    assert link.send([["GET", "a"]], 1) is None
    link.stop()
    log = capfd.readouterr().err
    assert reason in log
    assert log.count("is down") == 1
    assert "SECRET" not in log


def test_too_many_clients(open_link, fake):
    def reply(connection, _):
        connection.sendall(b"-ERR max number of clients reached\r\n")
        hang_up(connection)

    fake.replies["CLIENT"] = reply
    link = open_link(fake.url, waits=False)
    eventually(lambda: link.stats()["fallback"])
    assert link.stats()["errors"] == {"connection": 1, "timeout": 0, "other": 0}


@pytest.mark.parametrize("kind", ["refused", "unknown"])
def test_a_redis_that_cannot_be_reached_is_down(open_link, kind):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    host = "127.0.0.1" if kind == "refused" else "no-such-host.invalid"
    link = open_link(f"redis://{host}:{port}", waits=False)
    eventually(lambda: link.stats()["fallback"])
    assert link.stats()["errors"]["connection"] == 1


def test_a_plain_port_does_not_speak_tls(open_link, fake):
    fake.replies = {}
    link = open_link(fake.url.replace("redis://", "rediss://"), waits=False, connect_timeout_ms=200)
    eventually(lambda: link.stats()["fallback"])
    assert fake.commands == []


def test_replies_come_in_the_order_of_commands(open_link, fake):
    fake.replies["GET"] = lambda _, words: b":%d\r\n" % int(words[1])
    link = open_link(fake.url)
    calls = [link.send([["GET", str(2 * n)], ["GET", str(2 * n + 1)]], 2) for n in range(100)]
    assert [call.get() for call in calls] == [[2 * n, 2 * n + 1] for n in range(100)]
    assert link.stats()["commands"] == 100


@pytest.mark.parametrize("size", [1, 5])
def test_a_reply_may_come_in_pieces(open_link, fake, size):
    def reply(connection, _):
        data = b"*2\r\n$3\r\nabc\r\n$2\r\n10\r\n"
        for begin in range(0, len(data), size):
            connection.sendall(data[begin : begin + size])

    fake.replies["GET"] = reply
    assert open_link(fake.url).send([["GET", "a"]], 1).get() == [[b"abc", b"10"]]


@pytest.mark.parametrize(
    ("reply", "end"),
    [
        (hang_up, "connection: closed the connection"),
        (b"$100\r\nhalf", None),
        (b"?\r\n", "other: sent what is not RESP2"),
        (b"$9999999\r\n", "other: sent a reply of more than 1048576 bytes"),
        (b"*99999\r\n", "other: sent a reply of more than 16384 elements"),
        (None, "timeout: does not reply within 100 ms"),
        (b"$100\r\nand then nothing", "timeout: does not reply within 100 ms"),
    ],
)
def test_what_ends_a_connection_fails_every_command_on_it(open_link, fake, reply, end):
    first = []

    def once(connection, words):
        first.append(words)
        if len(first) > 1:
            return None
        if reply == b"$100\r\nhalf":
            connection.sendall(reply)
            hang_up(connection)
            return None
        return reply(connection, words) if callable(reply) else reply

    fake.replies["GET"] = once
    link = open_link(fake.url, command_timeout_ms=100, failures=100)
    calls = [link.send([["GET", str(n)]], 1) for n in range(3)]
    for call in calls:
        assert call is None or call.get() == (end or "connection: closed the connection")
    fake.replies["GET"] = b"+OK\r\n"
    eventually(lambda: link.stats()["idle"] == 1)
    assert link.send([["GET", "a"]], 1).get() == [("status", b"OK")]


def test_a_reply_may_take_longer_than_the_timeout_while_its_bytes_come(open_link, fake):
    fake.replies["GET"] = None
    link = open_link(fake.url, command_timeout_ms=2_000)
    long, behind = (link.send([["GET", str(n)]], 1) for n in range(2))
    fake.wait_for("GET", 2)
    (connection,) = fake.connections
    connection.sendall(b"$10\r\n")
    for digit in b"0123456789":
        time.sleep(0.25)  # far below the timeout; together above it
        connection.sendall(bytes([digit]))
    connection.sendall(b"\r\n")
    assert long.get() == [b"0123456789"]
    connection.sendall(b":1\r\n")
    assert behind.get() == [1]
    assert link.stats()["errors"] == {"connection": 0, "timeout": 0, "other": 0}


@pytest.mark.parametrize("reply", [b"$9999999\r\n", b"*99999\r\n"])
def test_a_reply_beyond_a_limit_says_nothing_against_redis(open_link, fake, reply):
    fake.replies["GET"] = None
    link = open_link(fake.url, failures=1)
    calls = [link.send([["GET", str(n)]], 1) for n in range(3)]
    fake.wait_for("GET", 3)
    fake.connections[0].sendall(reply)
    for call in calls:
        assert call.get().startswith("other: sent a reply of more than ")
    eventually(lambda: link.stats()["idle"] == 1)
    assert link.stats()["errors"] == {"connection": 0, "timeout": 0, "other": 1}
    assert not link.stats()["fallback"]


def test_a_stop_ends_what_waits(open_link, fake):
    fake.replies["GET"] = None
    link = open_link(fake.url)
    call = link.send([["GET", "a"]], 1)
    fake.wait_for("GET")
    assert link.stop() == 0
    assert call.get() == "other: the router stops"
    assert link.stats()["errors"] == {"connection": 0, "timeout": 0, "other": 0}


def test_a_large_command_is_written_whole(open_link, server):
    link = open_link(server.url)
    value = "x" * 900_000
    assert link.send([["SET", "a", value]], 1).get() == [("status", b"OK")]
    assert link.send([["GET", "a"]], 1).get() == [[value.encode()]][0]


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def serve_tls(folder, authority, *names):
    files = authority.certify(*names)
    return RedisServer(
        folder,
        *("--tls-cert-file", files.cert, "--tls-key-file", files.key),
        *("--tls-ca-cert-file", authority.path, "--tls-auth-clients", "no"),
    )


def test_a_real_redis_with_tls(open_link, tmp_path, authority):
    with serve_tls(tmp_path, authority, "127.0.0.1") as server:
        url = server.url.replace("redis://", "rediss://")
        link = open_link(url, ca_file=authority.path)
        value = "x" * 100_000
        replies = link.send([["SET", "a", value], ["GET", "a"]], 2).get()
        assert replies == [("status", b"OK"), value.encode()]


@pytest.mark.parametrize(("name", "trusted"), [("elsewhere", True), ("127.0.0.1", False)])
def test_a_certificate_is_checked(open_link, tmp_path, authority, capfd, name, trusted):
    with serve_tls(tmp_path, authority, name) as server:
        url = server.url.replace("redis://", "rediss://")
        link = open_link(url, waits=False, ca_file=authority.path if trusted else "")
        eventually(lambda: link.stats()["fallback"])
        assert link.stats()["errors"]["connection"] == 1
        link.stop()
    assert "is down: it fails the TLS handshake: " in capfd.readouterr().err


def test_a_real_redis_with_a_password(open_link, server):
    server.call("CONFIG", "SET", "requirepass", "p@ss")
    link = open_link(server.url.replace("redis://", "redis://:p%40ss@") + "/2")
    assert link.send([["SET", "a", "1"]], 1).get() == [("status", b"OK")]
    wrong = open_link(server.url.replace("redis://", "redis://:wrong@"), waits=False)
    eventually(lambda: wrong.stats()["fallback"])
