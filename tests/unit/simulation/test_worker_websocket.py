"""cpp/simulation/worker_websocket.cc: Responses over a WebSocket, with a real client and raw bytes."""

import json
from collections.abc import Iterator

import pytest
import websockets.exceptions
import websockets.sync.client

from tests.unit.simulation.apis import scripted
from tests.unit.simulation.wire import FAST, connect, get, read_to_end, read_until
from vllm_router.testing import SimulatedWorker

TOOLS = [{"type": "function", "name": "exec_command"}]
LONG = "Hello " * 100
SWITCH = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"


@pytest.fixture
def worker() -> Iterator[SimulatedWorker]:
    with SimulatedWorker(**FAST, tool_script=scripted("", ("exec_command", {"cmd": "ls"}))) as worker:
        yield worker


def opened(worker: SimulatedWorker, **options):
    return websockets.sync.client.connect(f"ws://127.0.0.1:{worker.port}/v1/responses", proxy=None, **options)


def answer(socket, **fields):
    """The events of one response, or the error."""
    socket.send(json.dumps({"type": "response.create", **fields}))
    events = [json.loads(socket.recv(30))]
    while events[-1]["type"] not in ("response.completed", "error"):
        events.append(json.loads(socket.recv(30)))
    return events


def test_a_conversation_continues_by_the_id_of_its_last_response(worker):
    with opened(worker) as socket:
        *_, warm = answer(socket, generate=False, input=LONG, tools=TOOLS)
        assert warm["response"]["output"] == []
        *_, first = answer(socket, previous_response_id=warm["response"]["id"], input=LONG, tools=TOOLS)
        (call,) = first["response"]["output"]
        assert (call["name"], call["arguments"]) == ("exec_command", '{"cmd":"ls"}')
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "calc.py"}
        *_, second = answer(socket, previous_response_id=first["response"]["id"], input=[result], tools=TOOLS)
    cached = [
        event["response"]["usage"]["input_tokens_details"]["cached_tokens"] for event in (warm, first, second)
    ]
    assert cached[0] == 0
    assert cached[1] >= len(LONG) // 4 - 16
    assert cached[2] >= cached[1] + len(LONG) // 4 - 16
    assert len({event["response"]["id"] for event in (warm, first, second)}) == 3
    stats = get(worker, "/stats")
    assert (stats["finished"], stats["failed"], stats["running"]) == (3, 0, 0)


def test_each_event_is_a_message_and_compression_is_declined(worker):
    with opened(worker, compression="deflate") as socket:
        assert "Sec-WebSocket-Extensions" not in socket.response.headers
        events = answer(socket, input="Hi")
    assert events[0]["type"] == "response.created"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_a_bad_message_gets_an_error_and_the_next_one_a_response(worker):
    with opened(worker) as socket:
        (unknown,) = answer(socket, previous_response_id="resp_1", input="Hi")
        assert unknown["error"]["code"] == "previous_response_not_found"
        (wrong,) = answer(socket, input=[])
        assert "at least one message" in wrong["error"]["message"]
        (other,) = answer(socket, model="gpt-9", input="Hi")
        assert (other["status"], other["error"]["code"]) == (400, None)
        assert answer(socket, input="Hi")[-1]["type"] == "response.completed"


def test_pings_are_answered_and_a_close_is_returned(worker):
    with opened(worker) as socket:
        assert socket.ping(b"p").wait(30)
        socket.close(1000, "bye")
        assert (socket.close_code, socket.close_reason) == (1000, "bye")


def test_a_binary_message_ends_the_connection(worker):
    with opened(worker) as socket:
        socket.send(b"\0")
        with pytest.raises(websockets.exceptions.ConnectionClosedError) as closed:
            socket.recv(30)
    assert closed.value.rcvd.code == 1003


def test_a_frame_without_a_mask_ends_the_connection(worker):
    with connect(worker) as stream:
        head = f"GET /v1/responses HTTP/1.1\r\nHost: w\r\n{SWITCH}Sec-WebSocket-Key: eA==\r\n\r\n"
        stream.sendall(head.encode() + b"\x81\x00")
        head, _, frames = read_to_end(stream).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ")
        assert frames == b"\x88\x02\x03\xea"  # 1002


def test_a_switch_needs_a_key_and_the_path_of_responses(worker):
    for path, status in (("/v1/responses", b" 400 "), ("/v1/messages", b" 405 ")):
        with connect(worker) as stream:
            stream.sendall(f"GET {path} HTTP/1.1\r\nHost: w\r\n{SWITCH}\r\n".encode())
            assert status in read_until(stream, b"\r\n")


def test_a_fault_affects_the_switch(worker):
    worker.set_faults(status_code=503)
    with pytest.raises(websockets.exceptions.InvalidStatus) as refused:
        opened(worker)
    assert refused.value.response.status_code == 503
