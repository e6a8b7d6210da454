"""Second runs of streams: how many there are, where, and that two runs are never mixed."""

import json
import threading

import pytest

from tests.fakes.continued import (
    CHAT,
    COMPLETIONS,
    HEAD,
    ON,
    Fleet,
    body,
    counts,
    events_of,
    got,
    stream,
    whole,
)
from tests.fakes.wire import PATIENCE, EndedEarlyError, chunk, eventually, request

TEXTS = ("The sea is blue and wide.", "Le soleil brûle, ⛵ part.", "x")


# ---- never a mix


def choice_events(path, texts=TEXTS, letters=4):
    """Events of several choices by turns, as engines send them."""

    def event(*choices):
        return b"data: " + json.dumps({"id": "1", "created": 1, "model": "m", "choices": choices}).encode()

    def choice(index, text, end=None):
        said = {"delta": {"content": text}} if path == CHAT else {"text": text}
        return {"index": index, **said, "finish_reason": end}

    made = []
    for at in range(0, max(map(len, texts)), letters):
        made += [
            event(choice(index, text[at : at + letters]))
            for index, text in enumerate(texts)
            if text[at : at + letters]
        ]
    made.append(event(*(choice(index, "", "stop") for index in range(len(texts)))))
    usage = {"prompt_tokens": 5, "completion_tokens": 30, "total_tokens": 35}
    made.append(b"data: " + json.dumps({"id": "1", "created": 1, "choices": [], "usage": usage}).encode())
    return [one + b"\n\n" for one in [*made, b"data: [DONE]"]]


def send_events(made_of, stop_after=None):
    """Sends what `made_of(path)` makes, or so much of it and ends the connection."""

    def turn(_worker, connection, message):
        made = made_of(message.target)
        connection.send(HEAD + b"".join(chunk(event) for event in made[:stop_after]))
        if stop_after is None:
            connection.send(b"0\r\n\r\n")
        else:
            connection.wait_until_read()
            connection.reset()

    return turn


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS], ids=["chat", "completions"])
def test_several_choices_go_on_each_where_it_was_at_every_cut(harness, path):
    fleet = Fleet(harness, 2)
    router = harness.router(*fleet.workers, retry_budget=1, **ON)
    whole_of_it = choice_events(path)
    for cut in range(1, len(whole_of_it)):
        fleet.turns = [send_events(choice_events, cut), send_events(choice_events)]
        sent = body(prompt=str(cut), n=len(TEXTS))
        assert got(harness.client(router), path, sent) == (b"".join(whole_of_it), True), cut
    router.must_rest()
    assert counts(router, "streams_continued_total") == {"lost": len(whole_of_it) - 1}


def test_another_text_of_one_choice_alone_cuts_all_of_them(harness):
    def others(path):
        return choice_events(path, (TEXTS[0], TEXTS[1].replace("soleil", "Soleil"), TEXTS[2]))

    fleet = Fleet(harness, 2, send_events(choice_events, 9), send_events(others))
    router = harness.router(*fleet.workers, **ON)
    cut = b"".join(choice_events(CHAT)[:9])
    assert got(harness.client(router), CHAT, body(n=3)) == (cut, False)
    router.must_rest()
    assert counts(router, "streams_cut_total") == {"diverged": 1}


SAMPLED = {
    "choices": {"temperature": 0.7, "n": 3},
    "choices by the engine's default": {"temperature": None, "n": 3},
    "schema": {"temperature": 0.7, "response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
    "regular expression": {"temperature": 1, "structured_outputs": {"regex": "[a-z]+"}},
    "tool": {"temperature": 0.2, "tool_choice": "required", "tools": [{"type": "function"}]},
    "one token of the best": {"temperature": 0.2, "top_k": 1},
}


@pytest.mark.parametrize("members", SAMPLED.values(), ids=SAMPLED)
def test_what_is_sampled_is_cut_where_it_was(harness, members):
    """No other worker has it, so that nothing of another run can follow."""
    fleet = Fleet(harness, 3, stream(stop_after=4), stream(run="2"))
    router = harness.router(*fleet.workers, retry_budget=1, **ON)
    assert got(harness.client(router), CHAT, body(**members)) == (b"".join(events_of(CHAT)[:4]), False)
    router.must_rest()
    assert len(fleet.served) == 1
    assert counts(router, "streams_cut_total") == counts(router, "streams_continued_total") == {}


GRAMMARS = {name: {**SAMPLED[name], "temperature": 0} for name in ("schema", "regular expression", "tool")}


@pytest.mark.parametrize("members", GRAMMARS.values(), ids=GRAMMARS)
def test_a_grammar_begins_with_the_second_run(harness, members):
    fleet = Fleet(harness, 2, stream(stop_after=4))
    router = harness.router(*fleet.workers, **ON)
    assert got(harness.client(router), CHAT, body(**members)) == (whole(CHAT), True)
    assert len(fleet.served) == 2


# ---- not too many, and not all in one place


def pause(gate, after=4):
    """Sends so many events, and the others once the gate opens."""

    def turn(worker, connection, message):
        worker.streaming = connection
        events = [chunk(event) for event in events_of(message.target)]
        connection.send(HEAD + b"".join(events[:after]))
        gate.wait()
        connection.send(b"".join(events[after:]) + b"0\r\n\r\n")  # raises at a worker that is dead

    return turn


def read_events(client, count):
    assert client.read_head().status == 200
    data = b""
    while data.count(b"data: ") < count:
        data += client.read_chunk()
    return data


def rest_of(client):
    """What still comes, and whether it has its end."""
    data = b""
    try:
        while piece := client.read_chunk():
            data += piece
    except (EndedEarlyError, ConnectionResetError):
        return data, False
    return data, True


def ask_all(harness, router, count):
    """Clients that each have four events of a stream; all of one session."""
    clients = [harness.client(router) for _ in range(count)]
    for number, client in enumerate(clients):
        sent = body(prompt=f"number {number}")
        client.send(request("POST", CHAT, ("X-Session-ID", "one"), body=sent))
    return clients, [read_events(client, 4) for client in clients]


def test_second_runs_of_one_worker_go_to_different_ones(harness):
    """Each may be what ended it, so no other worker gets two of them while there is one without."""
    fleet = Fleet(harness, 4)
    together = threading.Barrier(3)

    def when_all_are_there(worker, connection, message):
        together.wait(PATIENCE)
        stream()(worker, connection, message)

    gate = fleet.workers[0].gate()
    fleet.turns = [pause(gate)] * 3 + [when_all_are_there] * 3
    router = harness.router(*fleet.workers, policy="consistent_hash", retry_budget=1, **ON)
    clients, begun = ask_all(harness, router, 3)
    first = fleet.served[0]
    assert fleet.served == [first] * 3
    worker = fleet.workers[first]
    worker.die(worker.streaming)
    for client, begin in zip(clients, begun, strict=True):
        assert begin + client.read_to_last_chunk() == whole(CHAT)
    router.must_rest()
    assert sorted(fleet.served[3:]) == sorted({0, 1, 2, 3} - {first})


MOST = 100  # retries in ten seconds, of which a budget of 0 permits ten in each


def test_no_more_second_runs_begin_than_the_budget_of_retries_permits(harness):
    """So what a lost worker leaves is no wave of prompts for the others; streams beyond it are cut."""
    count = MOST + 12
    fleet = Fleet(harness, 3)
    gate, second = fleet.workers[0].gate(), fleet.workers[0].gate()

    def late(worker, connection, message):
        second.wait()
        stream()(worker, connection, message)

    fleet.turns = [pause(gate)] * count + [late] * count
    router = harness.router(*fleet.workers, policy="consistent_hash", retry_budget=0, **ON)
    clients, begun = ask_all(harness, router, count)
    first = fleet.served[0]
    assert fleet.served == [first] * count
    worker = fleet.workers[first]
    worker.die(worker.streaming)

    def all_is_decided():
        cut = counts(router, "streams_cut_total").get("retries", 0)
        return len(fleet.served) - count + cut == count

    eventually(all_is_decided, "a stream is neither cut nor run again")
    # All second runs are under way now, and none has said anything.
    assert len(fleet.served) == count + MOST
    assert first not in fleet.served[count:]
    second.open()
    ends = [rest_of(client) for client in clients]
    router.must_rest()
    for begin, (rest, has_end) in zip(begun, ends, strict=True):
        assert begin + rest == whole(CHAT) if has_end else rest == b""
    assert sum(has_end for _, has_end in ends) == MOST
    assert counts(router, "streams_cut_total") == {"retries": count - MOST}
    assert counts(router, "streams_continued_total")["lost"] == MOST


def test_streams_under_way_count_as_requests_for_the_budget(harness):
    """They may have begun long before the last ten seconds; of requests alone it would be 106."""
    count = MOST + 10
    fleet = Fleet(harness, 2)
    gate, second = fleet.workers[0].gate(), fleet.workers[0].gate()

    def late(worker, connection, message):
        second.wait()
        stream()(worker, connection, message)

    fleet.turns = [pause(gate)] * count + [late] * count
    router = harness.router(*fleet.workers, policy="consistent_hash", retry_budget=0.05, **ON)
    clients, begun = ask_all(harness, router, count)
    worker = fleet.workers[fleet.served[0]]
    worker.die(worker.streaming)
    eventually(
        lambda: len(fleet.served) - count + counts(router, "streams_cut_total").get("retries", 0) == count,
        "a stream is neither cut nor run again",
    )
    second.open()
    for client, begin in zip(clients, begun, strict=True):
        assert begin + client.read_to_last_chunk() == whole(CHAT)
    router.must_rest()


def test_a_second_run_does_not_go_to_a_worker_that_is_full(harness):
    """--max-worker-requests holds for it: it would be one more than the worker may have."""
    fleet = Fleet(harness, 2)
    gate = fleet.workers[0].gate()
    fleet.turns = [pause(gate)] * 2
    router = harness.router(
        *fleet.workers, routing={"max_worker_requests": 1}, retry_budget=1, continue_wait_secs=0, **ON
    )
    clients, begun = ask_all(harness, router, 2)
    assert sorted(fleet.served) == [0, 1]
    worker = fleet.workers[fleet.served[0]]
    worker.die(worker.streaming)
    eventually(lambda: counts(router, "streams_cut_total") == {"wait": 1}, "it is not cut")
    gate.open()
    assert len(fleet.served) == 2
    ends = [rest_of(client) for client in clients]
    assert sorted(begin + rest for begin, (rest, _) in zip(begun, ends, strict=True)) == [
        b"".join(events_of(CHAT)[:4]),
        whole(CHAT),
    ]


# ---- what ends workers


def test_a_stream_that_ends_workers_costs_two_beside_honest_ones(harness):
    """Sent twenty times among streams that are under way everywhere."""
    fleet = Fleet(harness, 8)
    gate = fleet.workers[0].gate()
    seen: dict[bytes, list[int]] = {}
    dead: list[int] = []
    lock = threading.Lock()

    def serve(worker, connection, message):
        number = fleet.workers.index(worker)
        if b"poison" in message.body:
            with lock:
                dead.append(number)
            connection.send(HEAD + b"".join(chunk(event) for event in events_of(message.target)[:4]))
            connection.wait_until_read()
            worker.die(connection)
            return
        with lock:
            runs = seen.setdefault(message.body, [])
            runs.append(number)
            is_first = len(runs) == 1
        connection.send(HEAD + b"".join(chunk(event) for event in events_of(message.target)[:5]))
        if is_first:
            gate.wait()
        connection.send(b"".join(chunk(event) for event in events_of(message.target)[5:]) + b"0\r\n\r\n")

    fleet.turns = [serve] * 200
    router = harness.router(*fleet.workers, retry_budget=1, **ON)
    bodies = [body(prompt=f"honest {number}") for number in range(32)]
    clients = [harness.client(router) for _ in bodies]
    for client, sent in zip(clients, bodies, strict=True):
        client.send(request("POST", CHAT, body=sent))
    begun = [read_events(client, 5) for client in clients]
    poison = [request("POST", CHAT, body=body(prompt="poison")) for _ in range(20)]
    statuses = []
    for sent in poison:
        client = harness.client(router)
        client.send(sent)
        response = client.read_head()
        statuses.append(response.status)
        if response.status == 200:
            assert rest_of(client) == (b"".join(events_of(CHAT)[:4]), False)
        client.close()
        eventually(lambda: "vllm_router_quarantines_total 1\n" in router.server.metrics_text(), "not known")
    gate.open()
    assert statuses == [200] + [502] * 19
    assert len(dead) == 2
    for client, begin, sent in zip(clients, begun, bodies, strict=True):
        rest, has_end = rest_of(client)
        assert begin + rest == whole(CHAT) if has_end else whole(CHAT).startswith(begin + rest)
        # Cut are those alone whose first worker and whose second one died under them.
        assert has_end or seen[sent][0] == dead[0]
    router.must_rest()
