"""What goes wrong with TLS, on either side: what the client sees, what the breaker hears, what a retry saves.

A worker's fault is met as in test_faults.py, alone and beside a healthy worker with retries on.
"""

import datetime as dt
import gc
import random
import socket
import ssl
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.authority import Authority
from tests.fakes.wire import Wire, chunk, eventually, request, response
from tests.proxy.test_faults import PATH, RETRIES, SSE_HEAD, must_have_heard, see

YESTERDAY = dt.datetime.now(dt.timezone.utc) - dt.timedelta(days=1)
TOMORROW = YESTERDAY + dt.timedelta(days=32)  # begins then, since it lasts for thirty days
ALERT = bytes.fromhex("15030100020228")  # handshake_failure


def in_place_of_a_handshake(action: Callable) -> Callable:
    """A worker at https:// that does this once a handshake has begun."""

    def place(harness, _authority, _stranger):
        def script(connection):
            connection.read_exactly(5)
            action(connection)

        return harness.worker(script=script).url.replace("http:", "https:")

    return place


def certified(whose: str, *names: str, ends: dt.datetime | None = None) -> Callable:
    def place(harness, authority, stranger):
        by = authority if whose == "ours" else stranger
        return harness.worker(tls=by.server(*names, ends=ends))

    return place


def old_version(harness, authority, _stranger):
    context = authority.server("127.0.0.1")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return harness.worker(tls=context)


def answers(*pieces: bytes, then: str) -> Callable:
    """A good handshake, and then this."""

    def place(harness, authority, _stranger):
        def script(connection):
            connection.read_request()
            for piece in pieces:
                connection.send(piece)
            if then == "garbage":
                garbage = bytes.fromhex("1703030020") + bytes(32)  # a record that nobody sealed
                socket.socket.sendall(connection.socket, garbage)  # below TLS
                connection.ending()
            else:
                getattr(connection, then)()

        return harness.worker(script=script, tls=authority.server("127.0.0.1"))

    return place


@dataclass
class Fault:
    name: str
    place: Callable
    client: str
    breaker: str = "failure"
    saved: bool = True
    options: dict[str, Any] = field(default_factory=dict)


UNREACHABLE = "502 worker_unreachable"
FAULTS = [
    Fault("a stranger's certificate", certified("stranger", "127.0.0.1"), UNREACHABLE),
    Fault("another's name", certified("ours", "elsewhere.example"), UNREACHABLE),
    Fault("another's address", certified("ours", "127.0.0.2"), UNREACHABLE),
    Fault("an expired certificate", certified("ours", "127.0.0.1", ends=YESTERDAY), UNREACHABLE),
    Fault("a certificate of the future", certified("ours", "127.0.0.1", ends=TOMORROW), UNREACHABLE),
    Fault("too old a version", old_version, UNREACHABLE, options={"tls_min_version": "1.3"}),
    Fault("closes in the handshake", in_place_of_a_handshake(lambda c: c.close()), UNREACHABLE),
    Fault("resets in the handshake", in_place_of_a_handshake(lambda c: c.reset()), UNREACHABLE),
    Fault("speaks plain", in_place_of_a_handshake(lambda c: c.send(response())), UNREACHABLE),
    Fault("refuses", in_place_of_a_handshake(lambda c: c.send(ALERT)), UNREACHABLE),
    Fault(
        "half a record",
        in_place_of_a_handshake(lambda c: (c.send(b"\x16\x03\x03\x40"), c.close())),
        UNREACHABLE,
    ),
    Fault(
        "hangs in the handshake",
        in_place_of_a_handshake(lambda c: c.ending()),
        "504 connect_timeout",
        options={"connect_timeout_secs": 0.3},
    ),
    Fault("closes before its answer", answers(then="end"), "502 worker_closed"),
    Fault("is cut before its answer", answers(then="close"), "502 worker_closed"),
    Fault("a false record before its answer", answers(then="garbage"), "502 worker_closed"),
    Fault(
        "is cut in its answer", answers(SSE_HEAD, chunk(b"x"), then="close"), "cut", "success failure", False
    ),
    Fault(
        "a false record in its answer",
        answers(SSE_HEAD, chunk(b"x"), then="garbage"),
        "cut",
        "success failure",
        False,
    ),
    Fault(
        "ends without a word where that is the end of the answer",
        answers(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf", then="close"),
        "cut",
        "success failure",
        False,
    ),
]
each_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)


@each_fault
def test_alone_the_client_sees_it(harness, authority, stranger, fault):
    router = harness.router(
        fault.place(harness, authority, stranger), worker_ca_file=authority.path, **fault.options
    )
    assert see(harness.client(router), b"{}") == fault.client
    must_have_heard(router, fault.breaker)
    router.wait_for_load(0)


@each_fault
def test_beside_a_well_worker_a_retry_saves_what_may_be_saved(harness, authority, stranger, fault):
    healthy = harness.worker(tls=authority.server("127.0.0.1"))
    placed = fault.place(harness, authority, stranger)
    router = harness.router(placed, healthy, worker_ca_file=authority.path, **fault.options, **RETRIES)
    assert see(harness.client(router), b"{}") == ("whole" if fault.saved else fault.client)
    assert len(healthy.requests) == fault.saved
    must_have_heard(router, fault.breaker, more=fault.saved)


# ---- clients: each is turned away, and the next is served


@pytest.fixture
def guarded(harness, authority):
    files = authority.certify("localhost")
    return harness.router(
        harness.worker(), tls_cert_path=files.cert, tls_key_path=files.key, client_head_timeout_secs=0.5
    )


def turned_away(router):
    line = 'vllm_router_client_connections_rejected_total{reason="tls_handshake"} '
    return int(router.server.metrics_text().split(line)[1].split("\n")[0])


HELLO = bytes.fromhex("16030100700100006c0303") + bytes(107)  # of a length that fits, and nothing in it


@pytest.mark.parametrize(
    "said",
    [
        request("POST", PATH, body=b"{}"),
        b"\x00" * 1000,
        b"\xff" * 100_000,
        HELLO,
        ALERT,
        bytes.fromhex("16030100"),
        bytes.fromhex("16030140ff") + b"\x01" * 40,
    ],
    ids=["plain", "zeros", "a flood", "an empty hello", "an alert", "half a header", "half a hello"],
)
@pytest.mark.parametrize("how", ["waits", "closes", "resets"])
def test_a_client_that_speaks_something_else_harms_nobody(harness, authority, guarded, said, how):
    client = harness.client(guarded)
    client.send_what_fits(said)
    if how == "waits":
        client.ending()
        assert not client.received.startswith(b"HTTP")
    else:
        client.close() if how == "closes" else client.reset()
    eventually(lambda: turned_away(guarded) == 1)
    eventually(lambda: "vllm_router_client_connections 0\n" in guarded.server.metrics_text())
    assert harness.client(guarded, tls=authority.client()).ask("POST", PATH, body=b"{}").status == 200


def test_clients_that_stop_in_the_handshake_are_shed_while_others_are_served(harness, authority, guarded):
    stuck = [harness.client(guarded) for _ in range(100)]
    for number, client in enumerate(stuck):
        client.send(HELLO[: 1 + number % 50])
    good = harness.client(guarded, tls=authority.client())
    while turned_away(guarded) < 100:
        assert good.ask("POST", PATH, body=b"{}").status == 200
    for client in stuck:
        assert client.ending() in ("eof", "reset")
    good.must_be_open()


@pytest.mark.parametrize("state", ["head", "body", "answer"])
def test_a_client_that_is_cut_below_tls_has_left(harness, authority, state):
    files = authority.certify("localhost")
    worker = harness.worker(
        lambda connection, _: connection.send(SSE_HEAD, chunk(b"data: 1\n\n")) or connection.ending()
    )
    router = harness.router(worker, tls_cert_path=files.cert, tls_key_path=files.key)
    client = harness.client(router, tls=authority.client())
    whole = request("POST", PATH, body=b"{}")
    client.send(whole[: {"head": 20, "body": len(whole) - 1, "answer": len(whole)}[state]])
    if state == "answer":
        assert client.read_head().status == 200
    client.close()  # a socket's close() says nothing inside
    router.must_rest()
    must_have_heard(router, "success" if state == "answer" else "neutral")
    eventually(lambda: "vllm_router_client_connections 0\n" in router.server.metrics_text())


def test_a_record_that_nobody_sealed_ends_a_clients_connection(harness, authority, guarded):
    client = harness.client(guarded, tls=authority.client())
    client.must_be_open()
    raw = socket.socket(fileno=client.socket.detach())
    raw.settimeout(30)
    raw.sendall(bytes.fromhex("1703030020") + bytes(32))
    told = b""
    while piece := raw.recv(1000):
        told += piece
    raw.close()
    assert b"HTTP" not in told
    assert harness.client(guarded, tls=authority.client()).ask("POST", PATH, body=b"{}").status == 200


def test_a_connection_that_is_reset_before_its_handshake_leaves_no_socket_of_the_fakes(authority):
    """`wrap_socket()` raises then; a socket that it left open would fail another test, by a warning."""
    for context in (authority.server("127.0.0.1"), authority.client()):
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            Wire(socket.create_connection(listening.getsockname())).reset()
            accepted, _ = listening.accept()
            eventually(lambda accepted=accepted: is_reset(accepted), "the reset never came")
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                server_side = context.protocol == ssl.PROTOCOL_TLS_SERVER
                with pytest.raises(ConnectionResetError):
                    context.wrap_socket(
                        accepted, server_side=server_side, server_hostname=None if server_side else "x"
                    )
                gc.collect()
            assert [str(warning.message) for warning in caught] == []


def is_reset(accepted):
    try:
        accepted.getpeername()
    except OSError:
        return True
    return False


def test_many_that_come_and_break_off_at_random_leave_nothing_behind(harness, authority, guarded, rng):
    seeds = [rng.random() for _ in range(4)]

    def storm(seed):
        dice = random.Random(seed)
        for _ in range(25):
            sock = socket.create_connection(("127.0.0.1", guarded.port))
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = authority.client().wrap_bio(incoming, outgoing, server_hostname="localhost")
            with pytest.raises(ssl.SSLWantReadError):
                tls.do_handshake()
            hello = bytearray(outgoing.read())
            for _flip in range(dice.randrange(3)):
                hello[dice.randrange(len(hello))] ^= 1 << dice.randrange(8)
            sock.sendall(hello[: dice.randrange(len(hello) + 1)])
            sock.close()

    threads = [threading.Thread(target=storm, args=(seed,)) for seed in seeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: "vllm_router_client_connections 0\n" in guarded.server.metrics_text())
    assert harness.client(guarded, tls=authority.client()).ask("POST", PATH, body=b"{}").status == 200


# ---- certificates that end


def seconds_left(router):
    found = {}
    for line in router.server.metrics_text().splitlines():
        if line.startswith("vllm_router_certificate_seconds_left{"):
            found[line.split('side="')[1].split('"')[0]] = float(line.split()[-1])
    return found


def test_the_metrics_say_when_certificates_end(harness, authority):
    days = dt.timedelta(days=3)
    ends = dt.datetime.now(dt.timezone.utc).replace(microsecond=0) + days
    shown, own = authority.certify("localhost", ends=ends), authority.certify("router", ends=YESTERDAY)
    router = harness.router(
        tls_cert_path=shown.cert,
        tls_key_path=shown.key,
        worker_cert_path=own.cert,
        worker_key_path=own.key,
        worker_ca_file=authority.path,
    )
    left = seconds_left(router)
    assert set(left) == {"client", "worker"}
    assert days.total_seconds() - 100 < left["client"] <= days.total_seconds()
    assert -86_400 - 3600 < left["worker"] <= -86_400  # counted from when this file was read
    assert seconds_left(harness.router()) == {}


def test_a_reload_of_certificates_is_counted_and_shows_in_the_time_left(harness, tmp_path):
    mine = Authority(tmp_path)
    files = mine.certify("localhost", ends=YESTERDAY)
    router = harness.router(tls_cert_path=files.cert, tls_key_path=files.key)
    assert seconds_left(router)["client"] < 0

    def counted(result):
        return (
            f'vllm_router_reloads_total{{file="certificates",result="{result}"}} 1\n'
            in router.server.metrics_text()
        )

    mine.replace(files, "localhost")
    router.server.reload()
    eventually(lambda: counted("ok"))
    assert seconds_left(router)["client"] > 0
    assert not counted("failed")
    Path(files.cert).write_text("rubbish")
    router.server.reload()
    eventually(lambda: counted("failed"))
    assert seconds_left(router)["client"] > 0
