"""WebSocket through the router: a real client library and a real server, and what raw sockets do to both."""

import asyncio
import contextlib
import json
import signal
import threading

import pytest
import websockets.asyncio.client
import websockets.asyncio.server
import websockets.exceptions
import websockets.sync.client
import websockets.sync.server

from tests.fakes.harness import error_of
from tests.fakes.wire import PATIENCE, eventually, request, response
from tests.proxy.test_access_log import command
from tests.proxy.test_admission import seats
from tests.proxy.test_dead_workers import ON as FAILING_SOON
from tests.proxy.test_idle_connections import is_served
from tests.proxy.test_metrics import page_of

REALTIME = "/v1/realtime"
SWITCH = (("Connection", "Upgrade"), ("Upgrade", "websocket"))
KEY = (("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="), ("Sec-WebSocket-Version", "13"))
ASK = request("GET", REALTIME, *SWITCH, *KEY)
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"


def echo(connection):
    for message in connection:
        connection.send(message)


@contextlib.contextmanager
def served(handler=echo, **options):
    """A WebSocket server of the library `websockets` in a thread."""
    with websockets.sync.server.serve(handler, "127.0.0.1", 0, **options) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def url_of(server, scheme="http"):
    return f"{scheme}://127.0.0.1:{server.socket.getsockname()[1]}"


def connected(router, path=REALTIME, scheme="ws", **options):
    return websockets.sync.client.connect(f"{scheme}://localhost:{router.port}{path}", proxy=None, **options)


def tunnelled(harness, worker, **options):
    """A raw client whose connection has been switched, and its router."""
    router = harness.router(worker, **options)
    client = harness.client(router)
    client.send(ASK)
    assert client.read_head().status == 101
    return router, client


def switching(then):
    """A worker that switches protocols, and then does this."""

    def script(connection):
        connection.read_request()
        connection.send(SWITCHED)
        then(connection)

    return script


# ---- a real client and a real server


@pytest.mark.parametrize("size", [0, 1, 125, 70_000, 1 << 20])
def test_messages_go_both_ways_unchanged(harness, rng, size):
    """mending row 17: WebSocket upgrades are tunnelled, where they used to become a plain GET."""
    with served(max_size=None) as server:
        router = harness.router(url_of(server))
        with connected(router, max_size=None) as client:
            for message in (rng.randbytes(size), "ä" * size):
                client.send(message)
                assert client.recv() == message
            assert router.loads() == [1]
        router.wait_for_load(0)


def test_pings_and_pongs_pass_both_ways(harness):
    def ping(connection):
        connection.send("alive" if connection.ping(b"server").wait(PATIENCE) else "dead")
        connection.recv()

    with served(ping) as server, connected(harness.router(url_of(server))) as client:
        assert client.recv() == "alive"
        assert client.ping(b"client").wait(PATIENCE)
        client.send("bye")


def test_what_the_handshake_says_arrives(harness):
    def tell(connection):
        connection.send(json.dumps([connection.request.path, *connection.request.headers.raw_items()]))

    with served(tell, subprotocols=["realtime", "other"]) as server:
        router = harness.router(url_of(server) + "/prefix")
        with connected(
            router, REALTIME + "?model=m", subprotocols=["realtime"], additional_headers={"X-A": "1"}
        ) as client:
            path, *fields = json.loads(client.recv())
            assert client.subprotocol == "realtime"
            assert client.response.headers["x-request-id"]
    assert path == f"/prefix{REALTIME}?model=m"
    named = {name.lower(): value for name, value in fields}
    assert named["x-a"] == "1"
    assert named["x-forwarded-for"] == "127.0.0.1"
    assert "vllm-router-" in named["via"]
    assert (named["connection"], named["upgrade"]) == ("Upgrade", "websocket")


@pytest.mark.parametrize("closer", ["client", "server"])
def test_a_closing_handshake_passes_with_its_code(harness, closer):
    ended = []

    def one_message(connection):
        connection.recv()
        if closer == "server":
            connection.close(4001, "enough")
        else:
            with contextlib.suppress(websockets.exceptions.ConnectionClosed):
                connection.recv()
        ended.append((connection.close_code, connection.close_reason))

    with served(one_message) as server:
        router = harness.router(url_of(server))
        with connected(router) as client:
            client.send("hello")
            if closer == "client":
                client.close(4002, "bye")
            else:
                with pytest.raises(websockets.exceptions.ConnectionClosed):
                    client.recv()
                assert (client.close_code, client.close_reason) == (4001, "enough")
        eventually(lambda: ended != [])
    assert ended == [(4001, "enough") if closer == "server" else (4002, "bye")]
    router.must_rest()
    assert page_of(router)["exchange_end_total"].total() == 1


def test_many_connections_do_not_mix(harness):
    with served() as server:
        router = harness.router(url_of(server), url_of(server) + "/b", threads=2)
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(connected(router)) for _ in range(30)]
            assert sum(router.loads()) == 30
            for turn in range(5):
                for number, client in enumerate(clients):
                    client.send(f"{number} {turn}")
                for number, client in enumerate(clients):
                    assert client.recv() == f"{number} {turn}"


def test_over_tls_on_both_sides(harness, authority):
    files = authority.certify("localhost", "127.0.0.1")
    with served(ssl=authority.server("127.0.0.1")) as server:
        router = harness.router(
            url_of(server, "https"),
            worker_ca_file=authority.path,
            tls_cert_path=files.cert,
            tls_key_path=files.key,
        )
        with connected(router, scheme="wss", ssl=authority.client(), max_size=None) as client:
            for message in ("hello", b"x" * 500_000):
                client.send(message)
                assert client.recv() == message


def test_both_directions_pass_at_once_over_tls(harness, authority, rng):
    """mending row 17: each side reads and writes the same TLS session while the other direction waits."""
    files = authority.certify("localhost", "127.0.0.1")
    up, down = ([rng.randbytes(rng.choice([1, 1000, 100_000])) for _ in range(100)] for _ in range(2))

    async def pour(connection, messages):
        for message in messages:
            await connection.send(message)

    async def exchange(connection, mine, theirs):
        pouring = asyncio.create_task(pour(connection, mine))
        assert [await connection.recv() for _ in theirs] == theirs
        await pouring

    async def serve_and_ask():
        async def handle(connection):
            await exchange(connection, down, up)
            await connection.wait_closed()

        tls = authority.server("127.0.0.1")
        async with websockets.asyncio.server.serve(handle, "127.0.0.1", 0, ssl=tls) as server:
            router = harness.router(
                f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}",
                worker_ca_file=authority.path,
                tls_cert_path=files.cert,
                tls_key_path=files.key,
            )
            url = f"wss://localhost:{router.port}{REALTIME}"
            async with websockets.asyncio.client.connect(url, ssl=authority.client(), proxy=None) as client:
                await exchange(client, up, down)

    asyncio.run(serve_and_ask())


def test_a_handshake_that_the_worker_rejects_is_an_ordinary_response(harness):
    def reject(connection, _request):
        return connection.respond(403, "not you\n")

    with served(process_request=reject) as server:
        router = harness.router(url_of(server))
        with pytest.raises(websockets.exceptions.InvalidStatus) as refusal:
            connected(router)
        assert (refusal.value.response.status_code, refusal.value.response.body) == (403, b"not you\n")


def test_a_request_without_a_websocket_key_is_for_the_worker_to_reject(harness):
    with served() as server:
        client = harness.client(harness.router(url_of(server)))
        client.send(request("GET", REALTIME, *SWITCH, ("Sec-WebSocket-Version", "13")))
        answer = client.read_response()
        assert (answer.status, b"Sec-WebSocket-Key" in answer.body) == (400, True)


def test_a_session_stays_at_its_worker_and_others_spread(harness):
    """mending row 17: without a body, it is the headers that the policy chooses by."""

    def named(name):
        def say(connection):
            connection.send(name)
            for _ in connection:
                pass

        return served(say)

    with named("a") as one, named("b") as other:
        router = harness.router(url_of(one), url_of(other), policy="consistent_hash")

        def worker_of(session):
            with connected(router, additional_headers={"X-Session-ID": session}) as client:
                return client.recv()

        homes = {session: worker_of(session) for session in map(str, range(20))}
        assert set(homes.values()) == {"a", "b"}
        assert all(worker_of(session) == home for session, home in homes.items())
        without = harness.router(url_of(one), url_of(other), policy="least_load")
        with connected(without) as first, connected(without) as second:
            assert {first.recv(), second.recv()} == {"a", "b"}


def test_keys_are_asked_for_as_anywhere(harness, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    with served() as server:
        router = harness.router(url_of(server), client_api_key_file=str(keys))
        with pytest.raises(websockets.exceptions.InvalidStatus) as refusal:
            connected(router)
        assert refusal.value.response.status_code == 401
        with connected(router, additional_headers={"Authorization": "Bearer secret"}) as client:
            client.send("hello")
            assert client.recv() == "hello"


@pytest.mark.parametrize(
    ("allowed", "origin", "passes"),
    [
        ([], "https://evil.example", False),
        ([], "own", True),
        (["https://ui.example"], "https://ui.example", True),
    ],
)
def test_a_page_of_another_site_may_not_open_one(harness, allowed, origin, passes):
    """Browsers check nothing before they open a WebSocket, and let the page read all of it."""
    with served() as server:
        router = harness.router(url_of(server), cors_allowed_origins=allowed)
        if origin == "own":  # as a program with the library websocket-client sends it
            origin = f"http://LocalHost:{router.port}"
        if passes:
            with connected(router, origin=origin) as client:
                client.send("hello")
                assert client.recv() == "hello"
            return
        with pytest.raises(websockets.exceptions.InvalidStatus) as refusal:
            connected(router, origin=origin)
        assert refusal.value.response.status_code == 403
        assert b"cross_site_request" in refusal.value.response.body


def test_two_origins_have_to_be_allowed_both_and_ordinary_requests_need_not(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker, cors_allowed_origins=["https://ui.example"]))
    fine, evil = ("Origin", "https://ui.example"), ("Origin", "https://evil.example")
    assert client.ask("GET", REALTIME, *SWITCH, fine, evil).status == 403
    assert client.ask("GET", REALTIME, *SWITCH, fine).status == 200
    assert client.ask("GET", REALTIME, evil).status == 200
    assert len(worker.requests) == 2


def test_another_worker_is_asked_where_the_first_is_not_there(harness):
    with served() as server:
        router = harness.router(harness.refusing_port(), url_of(server), disable_retries=False)
        for _ in range(4):
            with connected(router) as client:
                client.send("hello")
                assert client.recv() == "hello"


def test_a_router_before_a_router_tunnels_too(harness):
    with served() as server:
        inner = harness.router(url_of(server))
        outer = harness.router(f"http://127.0.0.1:{inner.port}")
        with connected(outer) as client:
            client.send("hello")
            assert client.recv() == "hello"


# ---- what counts as an upgrade


def says_what_came(connection, message):
    connection.send(response(200, message.head))


@pytest.mark.parametrize(
    "raw",
    [
        request(
            "GET", "/x", ("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "")
        ),
        request("POST", "/x", *SWITCH, body=b"{}"),
    ],
)
def test_anything_but_a_plain_websocket_upgrade_is_an_ordinary_request(harness, raw):
    """Nothing else is ever switched to: who reads the bytes behind it would be anybody's guess."""
    worker = harness.worker(says_what_came)
    client = harness.client(harness.router(worker))
    client.send(raw)
    came = client.read_response().body.lower()
    for field in (b"upgrade", b"http2-settings", b"connection"):
        assert field not in came


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\r\n",
        b"HTTP/1.0 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    ],
)
def test_a_worker_that_switches_to_something_else_is_a_502(harness, head):
    def switch(connection, _message):
        connection.send(head)
        assert connection.ending() in ("eof", "reset")

    client = harness.client(harness.router(harness.worker(switch)))
    client.send(ASK)
    answer = client.read_response()
    assert (answer.status, error_of(answer)["code"]) == (502, "worker_bad_answer")
    client.must_be_open()


@pytest.mark.parametrize("fields", [(), (("Connection", "Upgrade"), ("Upgrade", "h2c"))])
def test_a_worker_that_switches_unasked_is_a_502(harness, fields):
    worker = harness.worker(lambda connection, _: connection.send(SWITCHED))
    client = harness.client(harness.router(worker))
    answer = client.ask("GET", "/x", *fields)
    assert (answer.status, error_of(answer)["code"]) == (502, "worker_bad_answer")


# ---- bytes around the switch


def test_nothing_is_smuggled_through_an_upgrade_that_the_worker_rejects(harness):
    """mending row 17: without a 101 there is no tunnel; what follows is the next request, checked as any."""
    worker = harness.worker(
        lambda connection, _: connection.send(response(426, b"no", reason="Upgrade Required"))
    )
    router = harness.router(worker)
    client = harness.client(router)
    smuggled = request("GET", "/smuggled", ("Via", "1.1 nobody"))
    client.send(ASK + smuggled + b"GET /list_workers HTTP/1.1\r\nHost: a\r\n\r\n" + b"BAD\r\n\r\n")
    assert [client.read_response().status for _ in range(4)] == [426, 426, 200, 400]
    assert [message.target for message in worker.requests] == [REALTIME, "/smuggled"]
    for message in worker.requests:
        assert message.get("x-request-id")
        assert "vllm-router-" in message.all("via")[-1], "our own head, and not the client's bytes"
    received = bytes(worker.connections[0].received)
    assert received == b"".join(message.raw for message in worker.requests)


def test_bytes_behind_the_request_reach_the_worker_behind_the_switch(harness):
    """mending row 17: what a client sends before the 101 waits for it."""
    gate = None

    def switch_late(connection):
        connection.read_request()
        gate.wait()
        assert connection.ahead == b""
        assert not connection.readable(0)
        connection.send(SWITCHED + b"first")
        assert connection.read_exactly(12) == b"early, later"
        connection.send(b", last")

    worker = harness.worker(script=switch_late)
    gate = worker.gate()
    client = harness.client(harness.router(worker))
    client.send(ASK + b"early", b", later")
    client.wait_until_read()
    gate.wait_for_someone()
    gate.open()
    assert client.read_head().status == 101
    assert client.read_to_end() == b"first, last"


def test_more_than_may_be_pipelined_waits_in_the_socket(harness, rng):
    early = rng.randbytes(300_000)
    gate = None

    def switch_late(connection):
        connection.read_request()
        gate.wait()
        connection.send(SWITCHED)
        connection.send(connection.read_exactly(len(early)))

    worker = harness.worker(script=switch_late)
    gate = worker.gate()
    client = harness.client(harness.router(worker))
    sender = threading.Thread(target=client.send, args=(ASK + early,))
    sender.start()
    gate.wait_for_someone()
    gate.open()
    assert client.read_head().status == 101
    assert client.read_exactly(len(early)) == early
    sender.join(30)


# ---- ends


@pytest.mark.parametrize("side", ["client", "worker"])
def test_an_end_of_sending_passes_and_the_other_direction_goes_on(harness, side):
    def then(connection):
        if side == "worker":
            connection.half_close()
            assert connection.read_to_end() == b"still talking"
        else:
            assert connection.read_to_end() == b""
            connection.send(b"still talking")

    worker = harness.worker(script=switching(then))
    router, client = tunnelled(harness, worker)
    if side == "client":
        client.half_close()
        assert client.read_to_end() == b"still talking"
    else:
        assert client.read_to_end() == b""
        client.send(b"still talking")
        client.half_close()
    router.must_rest()
    ends = page_of(router)["exchange_end_total"]
    assert ends.values_of("end") == {"done"}


@pytest.mark.parametrize("side", ["client", "worker"])
def test_a_break_on_one_side_is_one_on_the_other(harness, side):
    endings = []

    def then(connection):
        if side == "worker":
            connection.reset()
        else:
            endings.append(connection.ending())

    worker = harness.worker(script=switching(then))
    router, client = tunnelled(harness, worker)
    if side == "client":
        client.reset()
        worker.connections[0].over.wait(30)
        assert endings == ["reset"]
    else:
        assert client.ending() == "reset"
    router.must_rest()
    ends = page_of(router)["exchange_end_total"]
    assert ends.values_of("end") == {"client_gone" if side == "client" else "worker_gone"}


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_client_that_dies_ends_the_workers_side(harness, how):
    codes = []

    def until_the_end(connection):
        with pytest.raises(websockets.exceptions.ConnectionClosedError):
            connection.recv()
        codes.append(connection.close_code)

    with served(until_the_end) as server:
        router, client = tunnelled(harness, url_of(server))
        getattr(client, how)()
        router.must_rest()
        eventually(lambda: codes == [1006])


def test_a_worker_that_is_found_dead_loses_its_tunnels(harness):
    """mending row 17: as it loses its streams, --dead-worker-grace-secs after."""

    def switch(connection, message):
        healthy = message.target == "/health"
        connection.send(response(200, b"") if healthy else SWITCHED)
        if not healthy:
            connection.ending()

    worker = harness.worker(switch)
    router, client = tunnelled(harness, worker, dead_worker_grace_secs=0, **FAILING_SOON)
    worker.stop_listening()
    assert client.ending() == "eof"
    router.must_rest()
    assert page_of(router)["exchange_end_total"].values_of("end") == {"worker_gone"}


def test_broken_tunnels_open_no_breaker(harness):
    """mending row 17: a client can make any server break off, so the worker is not to blame."""
    worker = harness.worker(script=switching(lambda connection: connection.reset()))
    router = harness.router(worker, disable_circuit_breaker=False, cb_failure_threshold=2)
    for _ in range(5):
        client = harness.client(router)
        client.send(ASK)
        assert client.read_head().status == 101
        assert client.ending() == "reset"
    assert len(worker.requests) == 5


def test_a_client_that_leaves_before_the_switch_takes_the_request_along(harness):
    worker = harness.worker(lambda connection, _: connection.ending())
    router = harness.router(worker)
    client = harness.client(router)
    client.send(ASK)
    worker.wait_for_requests(1)
    client.close()
    worker.connections[0].wait_ended()
    router.must_rest()


def test_a_silent_tunnel_is_cut_and_one_with_traffic_is_not(harness):
    """mending row 17: --stream-idle-timeout-secs, of both directions together."""
    pace = None

    def then(connection):
        for _ in range(3):
            pace._event.wait(0.4)
            connection.send(b"x")
        assert connection.ending() in ("eof", "reset")

    worker = harness.worker(script=switching(then))
    pace = worker.gate()
    router, client = tunnelled(harness, worker, stream_idle_timeout_secs=1)
    assert client.read_exactly(3) == b"xxx"
    for _ in range(3):
        pace._event.wait(0.4)
        client.send(b"y")
    assert client.read_to_end() == b""
    router.must_rest()
    assert page_of(router)["exchange_end_total"].values_of("end") == {"timeout"}


def test_a_tunnel_has_the_time_of_a_stream_in_all(harness):
    worker = harness.worker(script=switching(lambda connection: connection.ending()))
    router, client = tunnelled(harness, worker, request_timeout_secs=0.1, stream_total_timeout_secs=0.5)
    client.read_to_end()
    router.must_rest()
    assert page_of(router)["exchange_end_total"].values_of("end") == {"timeout"}


def test_a_tunnel_has_no_time_limit_of_an_ordinary_response(harness):
    pace = None

    def then(connection):
        pace._event.wait(0.5)
        connection.send(b"late")

    worker = harness.worker(script=switching(then))
    pace = worker.gate()
    _, client = tunnelled(harness, worker, request_timeout_secs=0.1)
    assert client.read_to_end() == b"late"


@pytest.mark.parametrize("side", ["client", "worker"])
def test_a_side_that_takes_nothing_for_too_long_is_cut(harness, side):
    def pour(connection):
        with contextlib.suppress(OSError):
            while side == "client":
                connection.send(bytes(100_000))
        stay.wait(30)

    stay = threading.Event()
    options = {"client_write_timeout_secs": 0.3, "upstream_write_timeout_secs": 0.3}
    worker = harness.worker(script=switching(pour), receive_buffer=4096)
    router, client = tunnelled(harness, worker, **options)
    with contextlib.suppress(OSError):
        while side == "worker":
            client.send(bytes(100_000))
    router.must_rest()
    stay.set()
    ends = page_of(router)["exchange_end_total"]
    assert ends.values_of("end") == {"slow_client" if side == "client" else "timeout"}


@pytest.mark.parametrize("direction", ["to client", "to worker"])
def test_a_slow_side_slows_the_other_one_and_loses_nothing(harness, rng, direction):
    data = rng.randbytes(20_000_000)
    got = []
    read = threading.Event()

    def then(connection):
        if direction == "to client":
            connection.send(data)
        else:
            read.wait(30)
            got.append(connection.read_exactly(len(data)))

    worker = harness.worker(script=switching(then))
    _, client = tunnelled(harness, worker)
    if direction == "to client":
        worker.wait_until_stuck()
        assert worker.connections[0].sent < len(data)
        assert client.read_exactly(len(data)) == data
    else:
        sender = threading.Thread(target=client.send, args=(data,))
        sender.start()
        last = -1
        while client.sent != last:  # until everything on the way is full
            last = client.sent
            sender.join(0.3)
        assert sender.is_alive()
        read.set()
        sender.join(30)
        eventually(lambda: got != [])
        assert got == [data]


def test_a_tunnel_holds_its_permit_until_its_end(harness):
    worker = harness.worker(script=switching(lambda connection: connection.ending()))
    router, client = tunnelled(harness, worker, max_concurrent_requests=1)
    other = harness.client(router)
    other.send(ASK)
    eventually(lambda: seats(router) == (1, 1))
    client.close()
    assert other.read_head().status == 101
    assert seats(router) == (1, 0)


def test_a_tunnel_is_no_idle_connection(harness):
    """mending row 17: at --max-connections a newcomer gets the place of an idle client, never a tunnel's."""
    worker = harness.worker(script=switching(lambda connection: connection.ending()))
    router, client = tunnelled(harness, worker, max_connections=2, client_idle_timeout_secs=0.1)
    idle = harness.client(router)
    idle.must_be_open()
    idle.must_be_closed()
    idle = harness.client(router)
    idle.must_be_open()
    newcomer = harness.client(router)
    newcomer.send(ASK)
    assert newcomer.read_head().status == 101
    idle.must_be_closed()
    assert not is_served(harness.client(router)), "two tunnels fill the limit"
    for connection, said in zip(worker.connections, (client, newcomer), strict=True):
        said.send(b"still served")
        eventually(lambda at=connection: at.received.endswith(b"still served"))


def test_a_shutdown_waits_for_a_tunnel_and_cuts_it_in_the_end(harness):
    worker = harness.worker(script=switching(lambda connection: connection.ending()))
    router, client = tunnelled(harness, worker, shutdown_grace_period_secs=0.5)
    router.may_cut = True
    router.shutdown()
    client.send(b"still served")
    assert client.ending() == "eof"
    router.must_end()
    assert worker.connections[0].wait_ended() == "eof"
    assert worker.connections[0].received.endswith(b"still served")


def test_a_worker_that_drains_has_its_tunnels_cut_in_time(harness):
    worker = harness.worker(script=switching(lambda connection: connection.ending()))
    router, client = tunnelled(harness, worker)
    body = json.dumps({"url": worker.url, "timeout_secs": 0.2}).encode()
    assert harness.client(router).ask("POST", "/admin/drain", body=body).status == 202
    assert client.ending() == "eof"
    router.must_rest()


def test_the_log_and_the_metrics_tell_of_it(harness):
    """mending row 17: status 101, how it ended, and the bytes both ways."""

    def then(connection):
        assert connection.read_exactly(5) == b"12345"
        connection.send(b"1234567")
        assert connection.ending() == "eof"

    worker = harness.worker(script=switching(then))
    with command("--worker-urls", worker.url, "--log-format", "json") as (process, port, stdout):
        client = harness.client_at(port)
        client.send(ASK)
        client.read_head()
        client.send(b"12345")
        assert client.read_exactly(7) == b"1234567"
        client.half_close()
        assert client.read_to_end() == b""
        process.send_signal(signal.SIGTERM)
        (line,) = [json.loads(line) for line in stdout]
        assert process.wait(30) == 0
    assert (line["status"], line["end"], line["bytes_in"], line["bytes_out"]) == (101, "done", 5, 7)
    assert line["path"] == REALTIME


KEY_PROTOCOL = "openai-insecure-api-key."


def test_a_page_s_key_is_a_subprotocol_and_stays_here(harness, tmp_path):
    """Row 28: a page cannot set headers of its WebSocket, so no browser got past --client-api-key-file."""
    keys = tmp_path / "keys"
    keys.write_text("sk-one\n")

    def tell(connection):
        connection.send(json.dumps(list(connection.request.headers.raw_items())))

    with served(tell, subprotocols=["realtime"]) as server:
        router = harness.router(url_of(server), client_api_key_file=str(keys))
        offered = ["realtime", KEY_PROTOCOL + "sk-one", "openai-beta.realtime-v1"]
        with connected(router, subprotocols=offered) as client:
            fields = {name.lower(): value for name, value in json.loads(client.recv())}
            assert client.subprotocol == "realtime"
        assert fields["sec-websocket-protocol"] == "realtime, openai-beta.realtime-v1"
        assert "sk-one" not in str(fields)
        for bad in ([KEY_PROTOCOL + "sk-two"], [KEY_PROTOCOL + "sk-one", KEY_PROTOCOL + "sk-two"], ["x"]):
            with (
                pytest.raises(websockets.exceptions.InvalidStatus) as caught,
                connected(router, subprotocols=["realtime", *bad]),
            ):
                pass
            assert caught.value.response.status_code == 401
        answer = harness.client(router).ask(
            "POST", "/v1/completions", ("Sec-WebSocket-Protocol", KEY_PROTOCOL + "sk-one"), body=b"{}"
        )
        assert answer.status == 401, "only where a page can send nothing else"


def test_without_keys_subprotocols_pass_as_they_are(harness):
    """Row 28: the worker may want the key."""

    def tell(connection):
        connection.send(connection.request.headers["sec-websocket-protocol"])

    with (
        served(tell, subprotocols=["realtime"]) as server,
        connected(harness.router(url_of(server)), subprotocols=["realtime", KEY_PROTOCOL + "k"]) as client,
    ):
        assert client.recv() == f"realtime, {KEY_PROTOCOL}k"
