"""Workers whose streams end early, by turns, and what comes of them at a client."""

import json
import re

from tests.fakes.wire import EndedEarlyError, chunk, eventually, request, response

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TEXT = "The sea is blue, the sky is grey, and both are wide: ⛵ sails far."
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ON = {
    "continue_streams": "verified",
    "continue_keepalive_secs": 0,
    "disable_retries": False,
    "retry_initial_backoff_ms": 1,
    "retry_max_backoff_ms": 5,
    "health_check_interval_secs": 3600,  # checks come from suspicion alone
}
DRAIN = {**ON, "retry_budget": 1, "continue_drain_secs": 0.05}
STALL = {**ON, "retry_budget": 1, "continue_stall_secs": 0.1}
COMMENT = b": keep-alive\n\n"
ABORT = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}\n\n'
SERVER_ERROR = b'data: {"error": {"message": "x", "type": "InternalServerError", "code": 500}}\n\n'


def events_of(path, *, text=TEXT, letters=7, run="1"):
    """All events of an engine whose text is the same in each run, as it names them in this one."""

    def event(delta, end=None):
        said = {"delta": {"content": delta}} if path == CHAT else {"text": delta}
        choice = {"index": 0, **said, "finish_reason": end}
        head = {"id": f"id-{run}", "created": int(run), "model": "m"}
        return b"data: " + json.dumps({**head, "choices": [choice]}).encode() + b"\n\n"

    made = [event(text[at : at + letters]) for at in range(0, len(text), letters)]
    if path == CHAT:
        role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        head = {"id": f"id-{run}", "created": int(run), "model": "m"}
        made.insert(0, b"data: " + json.dumps({**head, "choices": [role]}).encode() + b"\n\n")
    made.append(event("", "stop"))
    usage = {"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14}
    made.append(
        b"data: "
        + json.dumps(
            {"id": f"id-{run}", "created": int(run), "model": "m", "choices": [], "usage": usage}
        ).encode()
        + b"\n\n"
    )
    return [*made, b"data: [DONE]\n\n"]


def whole(path, **how):
    return b"".join(events_of(path, **how))


class Fleet:
    """Workers that take turns: the first request gets the first of `turns`, whichever worker it is at."""

    def __init__(self, harness, count, *turns):
        self.turns = list(turns)
        self.served = []  # by the worker's number
        self.checked = set()  # likewise: their health
        self.workers = [harness.worker(self._answerer(number)) for number in range(count)]

    def _answerer(self, number):
        def answer(connection, message):
            if message.method != "POST":  # a health check
                connection.send(response(200, b""))
                self.checked.add(number)
                return
            self.served.append(number)
            turn = self.turns.pop(0) if self.turns else stream()
            turn(self.workers[number], connection, message)

        return answer


def stream(*, stop_after=None, then="reset", **how):
    """Sends the events of a run, or so many of them and ends the connection."""

    def turn(_worker, connection, message):
        events = events_of(message.target, **how)
        connection.send(HEAD)
        for event in events[:stop_after]:
            connection.send(chunk(event))
        if stop_after is None:
            connection.send(b"0\r\n\r\n")
        elif then == "error":
            connection.send(chunk(SERVER_ERROR) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        elif then == "half":
            connection.send(chunk(events[stop_after][:9]))
            connection.wait_until_read()
            connection.reset()
        else:
            connection.wait_until_read()
            connection.reset()

    return turn


def die(after):
    """Sends so many events, and then its worker's process ends."""

    def turn(worker, connection, message):
        connection.send(HEAD + b"".join(chunk(event) for event in events_of(message.target)[:after]))
        connection.wait_until_read()
        worker.die(connection)

    return turn


def abort(after):
    """Sends so many events and, once the worker's `stuck` opens, one by which its engine aborts."""

    def turn(worker, connection, message):
        worker.stuck = worker.gate()
        connection.send(HEAD + b"".join(chunk(event) for event in events_of(message.target)[:after]))
        worker.stuck.wait()
        connection.send(chunk(ABORT) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    return turn


def late():
    """Begins its response when the worker's `stuck` opens."""

    def turn(worker, connection, message):
        worker.stuck.wait()
        stream()(worker, connection, message)

    return turn


def hang(after):
    """Sends so many events, and nothing until the worker's `stuck` opens; its connection stands."""

    def turn(worker, connection, message):
        worker.stuck = worker.gate()
        connection.send(HEAD + b"".join(chunk(event) for event in events_of(message.target)[:after]))
        worker.stuck.wait()

    return turn


def pause(after):
    """Sends so many events, and the rest once the worker's `stuck` opens."""

    def turn(worker, connection, message):
        worker.stuck = worker.gate()
        events = events_of(message.target)
        connection.send(HEAD + b"".join(chunk(event) for event in events[:after]))
        worker.stuck.wait()
        connection.send(b"".join(chunk(event) for event in events[after:]) + b"0\r\n\r\n")

    return turn


def raw(*events, then="end"):
    """Sends these events and ends the body, resets the connection, or leaves it open."""

    def turn(_worker, connection, _message):
        connection.send(HEAD + b"".join(chunk(event) for event in events))
        if then == "end":
            connection.send(b"0\r\n\r\n")
        elif then == "reset":
            connection.wait_until_read()
            connection.reset()

    return turn


def step_by_step(*stops, gates, run="1", text=TEXT, then="end"):
    """Sends the events up to each stop and waits for its gate; then all others, or nothing more."""

    def turn(_worker, connection, message):
        events = events_of(message.target, run=run, text=text)
        sent = 0
        connection.send(HEAD)
        for stop, gate in zip(stops, gates, strict=True):
            connection.send(b"".join(chunk(event) for event in events[sent:stop]))
            connection.wait_until_read()
            sent = stop
            gate.wait()
        if then == "end":
            connection.send(b"".join(chunk(event) for event in events[sent:]) + b"0\r\n\r\n")

    return turn


def begin(harness, router, count, **more):
    """A client that has the first events of its stream, and these."""
    client = harness.client(router)
    client.send(request("POST", CHAT, body=body(**more)))
    assert client.read_head().status == 200
    return client, read_events(client, count)


def read_events(client, count, before=b""):
    wanted = b"".join(events_of(CHAT)[:count])
    data = before
    while len(data) < len(wanted):
        data += client.read_chunk()
    assert data == wanted
    return data


def drain(harness, router, worker, secs=60):
    sent = json.dumps({"url": worker.url, "timeout_secs": secs}).encode()
    assert harness.client(router).ask("POST", "/admin/drain", body=sent).status == 202


def drain_ends(harness, router, worker, state):
    client = harness.client(router)

    def ended():
        rows = json.loads(client.ask("GET", "/admin/drain/status").body)["workers"]
        return [row["state"] for row in rows if row["url"] == worker.url] == [state]

    eventually(ended, f"it never became {state}")


def posted_to(worker):
    """The worker's connections that a stream was asked for on."""
    return [each for each in worker.connections if any(one.method == "POST" for one in each.requests)]


def handovers(router):
    found = {}
    for labels, count in re.findall(
        r"^vllm_router_stream_handovers_total\{(.*)\} (\d+)$", router.server.metrics_text(), re.M
    ):
        if int(count):
            named = dict(re.findall(r'(\w+)="(\w*)"', labels))
            found[named["why"], named["end"]] = int(count)
    return found


def body(**more):
    return json.dumps({"model": "m", "prompt": "a", "stream": True, "temperature": 0, **more}).encode()


def got(client, path, sent, *fields):
    """What comes of the body, and whether it has its end."""
    client.send(request("POST", path, *fields, body=sent))
    head = client.read_head()
    assert head.status == 200
    data = b""
    try:
        while piece := client.read_chunk():
            data += piece
    except (EndedEarlyError, ConnectionResetError):
        return data, False
    return data, True


def counts(router, name):
    """By why; of all methods together."""
    found = re.findall(
        rf"^vllm_router_{name}(?:\{{why=\"(\w+)\"(?:,method=\"\w+\")?\}})? (\d+)$",
        router.server.metrics_text(),
        re.M,
    )
    counted = {why: 0 for why, _ in found}
    for why, count in found:
        counted[why] += int(count)
    return {why: count for why, count in counted.items() if count}
