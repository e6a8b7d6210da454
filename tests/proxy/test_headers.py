"""What happens to header fields on the way: docs/reference/http_api.md, a test per row and direction."""

import re

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import Message, eventually, parse_head, request, response

END_TO_END = [
    ("Content-Type", "application/json; charset=utf-8"),
    ("Content-Encoding", "gzip"),
    ("Accept", "text/event-stream"),
    ("Accept-Encoding", "gzip, br"),
    ("User-Agent", "OpenAI/Python 1.50"),
    ("X-Stainless-Lang", "python"),
    ("Cookie", "a=b; c=d"),
    ("x-lower-case", "kept"),
    ("X-Twice", "1"),
    ("X-Twice", "2"),
    ("X-Empty", ""),
    ("X-Latin", "gr\xfc\xdfe"),
    ("OpenAI-Organization", "org"),
    ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ("tracestate", "a=b"),
    ("baggage", "k=v"),
]


def sent_up(
    harness,
    *fields: tuple[str, str],
    url: str = "",
    method: str = "POST",
    target="/v1/completions",
    **options,
):
    """The request that reaches a worker when a client sends one with these fields."""
    worker = harness.worker()
    version = options.pop("version", "1.1")
    router = harness.router(worker.url + url, **options)
    client = harness.client(router)
    answer = client.ask(method, target, *fields, body=b"{}" if method == "POST" else None, version=version)
    assert answer.status == 200, answer
    return worker.requests[0]


def sent_down(
    harness, *fields: tuple[str, str], sends: tuple[tuple[str, str], ...] = (), **options
) -> Message:
    """The answer that reaches a client when a worker's has these fields."""
    worker = harness.worker(lambda connection, _: connection.send(response(200, b"{}", *fields)))
    client = harness.client(harness.router(worker, **options))
    answer = client.ask("POST", "/v1/completions", *sends, body=b"{}")
    client.must_be_open()
    return answer


# ---- to the worker


@pytest.mark.parametrize("spelling", ["X-Private", "x-private", "X-PRIVATE"])
def test_what_connection_names_stays_here(harness, spelling):
    message = sent_up(
        harness, ("X-Private", "a"), ("Connection", f"{spelling}, x-other"), ("X-Other", "b"), ("X-C", "c")
    )
    assert "x-private" not in message.names
    assert "x-other" not in message.names
    assert message.get("x-c") == "c"


def test_every_other_field_goes_up_unchanged_in_its_order(harness):
    message = sent_up(harness, *END_TO_END)
    assert [field for field in message.fields if field in END_TO_END] == END_TO_END


@pytest.mark.parametrize("preserve", [False, True])
def test_host_is_the_worker_s_unless_it_is_to_be_preserved(harness, preserve):
    message = sent_up(harness, preserve_host=preserve)
    worker_host = re.fullmatch(r"127\.0\.0\.1:\d+", message.get("host"))
    assert bool(worker_host) != preserve
    assert (message.get("host") == "router") == preserve


FORWARDED = [
    ("X-Forwarded-For", "10.0.0.1"),
    ("X-Forwarded-For", "10.0.0.2"),
    ("X-Forwarded-Proto", "https"),
    ("X-Forwarded-Host", "outside"),
]


def test_x_forwarded_fields_that_are_trusted_are_continued(harness):
    message = sent_up(harness, *FORWARDED)
    assert message.get("x-forwarded-for") == "10.0.0.1, 10.0.0.2, 127.0.0.1"
    assert message.get("x-forwarded-proto") == "https"
    assert message.get("x-forwarded-host") == "outside"


def test_x_forwarded_fields_that_are_not_trusted_are_replaced(harness):
    message = sent_up(harness, *FORWARDED, trust_forwarded=False)
    assert message.get("x-forwarded-for") == "127.0.0.1"
    assert message.get("x-forwarded-proto") == "http"
    assert message.get("x-forwarded-host") == "router"


def test_a_request_without_body_announces_none(harness):
    message = sent_up(harness, method="GET")
    assert message.get("content-length") is None
    assert message.get("transfer-encoding") is None


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
def test_a_length_of_zero_is_passed_on(harness, method):
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    assert client.ask(method, "/x", body=b"").status == 200
    assert worker.requests[0].get("content-length") == "0"


# ---- Via, and circles


def router_in_a_row(harness, target, **options):
    """A router whose only worker is `target`."""
    return harness.router(target if isinstance(target, str) else f"http://127.0.0.1:{target.port}", **options)


def test_each_router_appends_itself_to_via(harness):
    worker = harness.worker()
    inner = router_in_a_row(harness, worker.url)
    outer = router_in_a_row(harness, inner)
    client = harness.client(outer)
    assert client.ask("GET", "/x", ("Via", "1.1 nginx")).status == 200
    first, second, third = worker.requests[0].all("via")
    assert first == "1.1 nginx"
    assert re.fullmatch("1.1 vllm-router-[0-9a-f]{16}", second)
    assert re.fullmatch("1.1 vllm-router-[0-9a-f]{16}", third)
    assert second != third


def circle(harness, length, **options):
    """Routers, each the worker of the one before it, and the first that of the last."""
    routers = [harness.router(**options) for _ in range(length)]
    for number, router in enumerate(routers):
        router.core.add_worker(f"http://127.0.0.1:{routers[number - 1].port}")
    return routers


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("path", ["/v1/completions", "/anything"])
@pytest.mark.parametrize("size", [2, 200_000])
def test_a_request_that_comes_back_is_refused(harness, length, path, size):
    first = circle(harness, length)[0]
    answer = harness.client(first).ask("POST", path, body=bytes(size))
    assert answer.status == 508
    assert error_of(answer)["code"] == "loop_detected"
    assert "passed through this router already" in error_of(answer)["message"]


@pytest.mark.parametrize("length", [1, 2])
def test_a_model_list_of_routers_in_a_circle_is_not_asked_for_ever(harness, length):
    answer = harness.client(circle(harness, length)[0]).ask("GET", "/v1/models")
    assert (answer.status, error_of(answer)["code"]) == (503, "no_workers")


def test_a_router_cannot_become_its_own_worker_and_says_so_at_once(harness):
    router = harness.router()
    answer = harness.client(router).ask("POST", f"/add_worker?url=http://127.0.0.1:{router.port}")
    assert answer.status == 400
    assert "leads back to this router" in error_of(answer)["message"]


def test_a_router_that_is_its_own_worker_is_found_unhealthy(harness):
    router = circle(harness, 1, health_check_interval_secs=0.01)[0]
    eventually(lambda: not router.core.workers[0].healthy)


@pytest.mark.parametrize(("hops", "status"), [(10, 200), (11, 508)])
def test_a_chain_of_more_than_ten_routers_is_taken_for_a_circle(harness, hops, status):
    client = harness.client(harness.router(harness.worker()))
    via = ", ".join(f"1.1 vllm-router-{number:016x}" for number in range(hops))
    answer = client.ask("GET", "/x", ("Via", via))
    assert answer.status == status
    if status == 508:
        assert "passed through 11 routers" in error_of(answer)["message"]


# ---- Authorization


def test_the_client_s_authorization_goes_up_and_the_worker_s_key_does_not(harness):
    message = sent_up(harness, ("Authorization", "Bearer client"), api_key="worker-key")
    assert message.get("authorization") == "Bearer client"


def test_the_worker_s_key_is_sent_for_a_client_that_sends_none(harness):
    assert sent_up(harness, api_key="worker-key").get("authorization") == "Bearer worker-key"
    assert sent_up(harness).get("authorization") is None


# ---- data-parallel ranks


def test_a_rank_is_told_to_the_worker_instead_of_the_client_s(harness):
    message = sent_up(harness, ("X-data-parallel-rank", "9"), url="@3")
    assert message.get("x-data-parallel-rank") == "3"
    assert message.get("host").startswith("127.0.0.1:")


def test_each_rank_of_a_host_is_asked_in_turn(harness):
    worker = harness.worker()
    router = harness.router(worker, routing={"intra_node_data_parallel_size": 3})
    client = harness.client(router)
    for _ in range(6):
        client.ask()
    assert sorted(message.get("x-data-parallel-rank") for message in worker.requests) == list("001122")


# ---- request id


@pytest.mark.parametrize("name", ["X-Request-Id", "X-Correlation-ID", "x-trace-id", "Request-Id"])
def test_an_id_of_the_client_goes_up_and_comes_back(harness, name):
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    answer = client.ask("POST", "/v1/completions", (name, "my-id-1"), body=b"{}")
    assert answer.get("x-request-id") == "my-id-1"
    assert worker.requests[0].get("x-request-id") == "my-id-1"
    assert worker.requests[0].names.count(name.lower()) == (1 if name == "X-Request-Id" else 0)


def test_the_first_of_the_id_headers_wins(harness):
    fields = [("X-Trace-Id", "third"), ("X-Correlation-Id", "second")]
    answer = sent_down(harness, sends=tuple(fields))
    assert answer.get("x-request-id") == "second"
    answer = sent_down(harness, sends=tuple(fields), request_id_headers=["x-trace-id"])
    assert answer.get("x-request-id") == "third"


def test_an_empty_id_is_no_id(harness):
    assert re.fullmatch(
        r"cmpl-[0-9A-Za-z]{24}", sent_down(harness, sends=(("X-Request-Id", ""),)).get("x-request-id")
    )


@pytest.mark.parametrize(
    ("path", "prefix"),
    [
        ("/v1/chat/completions", "chatcmpl-"),
        ("/v1/completions", "cmpl-"),
        ("/generate", "gnt-"),
        ("/v1/embeddings", "req-"),
        ("/v1/responses", "req-"),
        ("/anything", "req-"),
    ],
)
def test_an_id_is_made_with_the_route_s_prefix_which_the_worker_does_not_see(harness, path, prefix):
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    ids = [client.ask("POST", path, body=b"{}").get("x-request-id") for _ in range(3)]
    assert len(set(ids)) == 3
    for made, message in zip(ids, worker.requests, strict=True):
        assert re.fullmatch(prefix + "[0-9A-Za-z]{24}", made)
        assert message.get("x-request-id") == made.removeprefix(prefix)


def test_own_answers_carry_an_id_too(harness):
    client = harness.client(harness.router(harness.worker()))
    assert client.ask("GET", "/liveness", ("X-Request-Id", "mine")).get("x-request-id") == "mine"
    assert client.ask("GET", "/liveness").get("x-request-id").startswith("req-")
    assert client.ask("GET", "/a%00", ("X-Request-Id", "mine")).get("x-request-id") == "mine"


# ---- to the client


def test_what_the_worker_s_connection_names_stays_here(harness):
    answer = sent_down(harness, ("X-Private", "a"), ("Connection", "x-private"), ("X-C", "c"))
    assert "x-private" not in answer.names
    assert answer.get("x-c") == "c"


def test_every_other_field_comes_down_unchanged_in_its_order(harness):
    answer = sent_down(harness, *END_TO_END)
    assert answer.fields[: len(END_TO_END)] == END_TO_END
    assert sorted(answer.names[len(END_TO_END) :]) == ["content-length", "x-request-id"]


def test_the_worker_s_connection_close_is_not_the_client_s(harness):
    worker = harness.worker(
        lambda connection, _: (
            connection.send(response(200, b"bye", ("Connection", "close"))) or connection.close()
        )
    )
    client = harness.client(harness.router(worker))
    for _ in range(3):
        answer = client.ask()
        assert (answer.body, answer.get("connection")) == (b"bye", None)
    assert len(worker.connections) == 3


def test_the_client_s_connection_close_is_not_the_worker_s(harness):
    worker = harness.worker()
    router = harness.router(worker)
    for _ in range(3):
        client = harness.client(router)
        assert client.ask("GET", "/x", ("Connection", "close")).get("connection") == "close"
        client.must_be_closed()
    assert len(worker.connections) == 1
    assert all("connection" not in message.names for message in worker.requests)


# ---- the whole head, to the byte


def test_a_head_to_the_worker_to_the_byte(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    client.send(
        b"POST /v1/completions?x=1 HTTP/1.1\r\nHost: router\r\nuser-agent:  spaced  \r\n"
        b"Content-Length: 2\r\nX-Request-ID: id\r\nConnection: keep-alive\r\nAccept: */*\r\n\r\n{}"
    )
    assert client.read_response().status == 200
    name = worker.requests[0].get("via").removeprefix("1.1 ")
    assert worker.requests[0].head == (
        b"POST /v1/completions?x=1 HTTP/1.1\r\n"
        b"Host: 127.0.0.1:%d\r\nuser-agent: spaced\r\nAccept: */*\r\nVia: 1.1 %b\r\n"
        b"X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: router\r\n"
        b"X-Request-Id: id\r\nContent-Length: 2\r\n\r\n" % (worker.port, name.encode())
    )


def test_a_head_to_the_client_to_the_byte(harness):
    worker = harness.worker(
        lambda connection, _: connection.send(response(200, b"{}", ("server", "uvicorn")))
    )
    client = harness.client(harness.router(worker))
    client.send(request("GET", "/x", ("X-Request-Id", "id")))
    client.read_response()
    assert bytes(client.received) == (
        b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\nx-request-id: id\r\nContent-Length: 2\r\n\r\n{}"
    )
    parse_head(bytes(client.received)[:-2])
