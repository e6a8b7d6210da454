"""cpp/simulation/kv_event_publisher.h: what a subscriber of pyzmq hears of a simulated worker's cache."""

import contextlib
import http.client
import json
import random
from collections.abc import Iterator

import pytest

from tests.unit.simulation.wire import FAST, ask, eventually, get
from vllm_router import _core_testing as testing
from vllm_router.testing import SimulatedWorker

msgpack = pytest.importorskip("msgpack")
zmq = pytest.importorskip("zmq")

PATIENCE_MS = 30_000
END = (1 << 64) - 1
PORTS = {"kv_events_port": 0, "kv_events_replay_port": 0}
BLOCK = 16


class Subscriber:
    """What one worker publishes, and the cache that follows from it."""

    def __init__(self, context: "zmq.Context", worker: SimulatedWorker) -> None:
        self.worker = worker
        self.socket = context.socket(zmq.SUB)
        self.socket.linger = 0
        self.socket.rcvtimeo = PATIENCE_MS
        self.socket.subscribe(b"")
        self.socket.connect(f"tcp://127.0.0.1:{worker.kv_events_port}")
        self.dealer = context.socket(zmq.DEALER)
        self.dealer.linger = 0
        self.dealer.rcvtimeo = PATIENCE_MS
        self.dealer.connect(f"tcp://127.0.0.1:{worker.kv_events_replay_port}")
        self.batches: list[tuple[int, bytes]] = []
        # A publisher sends to those that it knows; each attempt is a prompt of its own.
        self.socket.rcvtimeo = 50
        for attempt in range(1000):
            complete(worker, [attempt] * BLOCK)
            with contextlib.suppress(zmq.Again):
                self.receive()
                break
        self.socket.rcvtimeo = PATIENCE_MS
        newest = self.replay(0)[-1][0]
        if self.batches[-1][0] < newest:
            self.receive_through(newest)

    def receive(self) -> int:
        topic, number, payload = self.socket.recv_multipart()
        assert topic == b""
        self.batches.append((int.from_bytes(number, "big"), payload))
        return self.batches[-1][0]

    def receive_through(self, number: int) -> None:
        while self.receive() < number:
            pass

    def replay(self, start: int) -> list[tuple[int, bytes]]:
        self.dealer.send_multipart([b"", start.to_bytes(8, "big")])
        responses = []
        while True:
            *empty, topic, number, payload = self.dealer.recv_multipart()
            assert (empty, topic) == ([b""], b"")
            if int.from_bytes(number, "big") == END:
                assert payload == b""
                return responses
            responses.append((int.from_bytes(number, "big"), payload))


def complete(worker: SimulatedWorker, prompt: list[int], max_tokens: int = 1) -> int:
    """Returns the number of cached tokens."""
    status, _, body = ask(worker, "/v1/completions", {"prompt": prompt, "max_tokens": max_tokens})
    assert status == 200, body
    return (json.loads(body)["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)


def events_of(payload: bytes) -> list[dict]:
    seconds, events, rank = msgpack.unpackb(payload, strict_map_key=False)
    assert isinstance(seconds, float)
    assert rank == 0
    return events


class Picture:
    """The cache as the events tell it: token ids up to the end of each block."""

    def __init__(self) -> None:
        self.prefixes: dict[int, tuple[int, ...]] = {}

    def apply(self, payload: bytes) -> None:
        for event in events_of(payload):
            if event["type"] == "AllBlocksCleared":
                assert event == {"type": "AllBlocksCleared"}
                self.prefixes.clear()
            elif event["type"] == "BlockRemoved":
                assert list(event) == ["type", "block_hashes", "medium", "group_idx"]
                (name,) = event["block_hashes"]
                del self.prefixes[name]
            else:
                self.store(event)

    def store(self, event: dict) -> None:
        assert event["type"] == "BlockStored"
        names, tokens, parent = event["block_hashes"], event["token_ids"], event["parent_block_hash"]
        assert len(tokens) == len(names) * event["block_size"]
        prefix = () if parent is None else self.known_parent(parent)
        for i, name in enumerate(names):
            prefix += tuple(tokens[i * BLOCK : (i + 1) * BLOCK])
            assert name not in self.prefixes
            self.prefixes[name] = prefix

    def known_parent(self, parent: int) -> tuple[int, ...]:
        return self.prefixes[parent]

    def cached_tokens(self, prompt: list[int]) -> int:
        """As the worker counts: the last token is always computed, and with it its page."""
        held = set(self.prefixes.values())
        blocks = 0
        while (blocks + 1) * BLOCK < len(prompt) and tuple(prompt[: (blocks + 1) * BLOCK]) in held:
            blocks += 1
        return blocks * BLOCK


@pytest.fixture
def context() -> Iterator["zmq.Context"]:
    with zmq.Context() as context:
        yield context


@contextlib.contextmanager
def subscribed(context, **options):
    with SimulatedWorker(**(FAST | PORTS | options)) as worker:
        subscriber = Subscriber(context, worker)
        try:
            yield worker, subscriber
        finally:
            subscriber.socket.close()
            subscriber.dealer.close()


def test_a_prompt_is_one_event_in_the_shape_of_vllm(context):
    with subscribed(context) as (worker, subscriber):
        prompt = list(range(1000, 1000 + 2 * BLOCK + 5))
        complete(worker, prompt)
        number = subscriber.receive()
        assert number == subscriber.batches[-2][0] + 1
        (event,) = events_of(subscriber.batches[-1][1])
        assert list(event.items()) == [
            ("type", "BlockStored"),
            ("block_hashes", event["block_hashes"]),
            ("parent_block_hash", None),
            ("token_ids", prompt[: 2 * BLOCK]),
            ("block_size", BLOCK),
            ("lora_id", None),
            ("medium", "GPU"),
            ("lora_name", None),
            ("extra_keys", [None, None]),
            ("group_idx", 0),
            ("kv_cache_spec_kind", "full_attention"),
        ]
        assert len(event["block_hashes"]) == 2

        complete(worker, prompt[: 2 * BLOCK] + [7] * BLOCK)
        subscriber.receive()
        (longer,) = events_of(subscriber.batches[-1][1])
        assert longer["parent_block_hash"] == event["block_hashes"][-1]
        assert longer["token_ids"] == [7] * BLOCK


def test_our_decoder_reads_it(context):
    with subscribed(context, cache_blocks=8) as (worker, subscriber):
        for first in range(1000, 1003):
            complete(worker, [first] * (4 * BLOCK))
            subscriber.receive()
        batch = testing.decode_kv_batch(subscriber.batches[-1][1])
        assert (batch["rank"], batch["dropped"]) == (0, {})
        *removed, stored = batch["events"]
        assert {event["kind"] for event in removed} == {"removed"}
        assert (stored["medium"], stored["block_size"], stored["group"]) == ("gpu", BLOCK, 0)
        assert (stored["spec_kind"], stored["tokens"]) == ("full", [1002] * (4 * BLOCK))


def test_the_blocks_of_a_response_are_stored_at_its_end_and_can_be_hit(context):
    with subscribed(context) as (worker, subscriber):
        prompt = list(range(500, 500 + BLOCK + 3))
        complete(worker, prompt, max_tokens=2 * BLOCK)
        subscriber.receive()
        subscriber.receive()
        (first,), (second,) = (events_of(payload) for _, payload in subscriber.batches[-2:])
        assert first["token_ids"] == prompt[:BLOCK]
        assert second["parent_block_hash"] == first["block_hashes"][-1]
        assert second["token_ids"][:3] == prompt[BLOCK:]
        assert len(second["token_ids"]) == 2 * BLOCK
        said = prompt[:BLOCK] + second["token_ids"]
        assert complete(worker, [*said, 1]) == 3 * BLOCK


@pytest.mark.parametrize("cache_blocks", [24, 60, 4096])
def test_the_picture_of_the_events_is_the_workers_cache(context, cache_blocks):
    draw = random.Random(cache_blocks)
    with subscribed(context, cache_blocks=cache_blocks) as (worker, subscriber):
        picture = Picture()
        for _, payload in subscriber.replay(0):
            picture.apply(payload)
        known = [[draw.randrange(100_000) for _ in range(6 * BLOCK)] for _ in range(6)]
        for _ in range(60):
            prompt = draw.choice(known)[: draw.randrange(1, 6 * BLOCK)]
            prompt += [draw.randrange(100_000) for _ in range(draw.randrange(2 * BLOCK))]
            believed = picture.cached_tokens(prompt)
            assert complete(worker, prompt, max_tokens=draw.randrange(1, 40)) == believed
            for number, payload in subscriber.replay(subscriber.batches[-1][0] + 1):
                picture.apply(payload)
                assert subscriber.receive() == number
                assert subscriber.batches[-1][1] == payload
            assert len(picture.prefixes) == worker.stats()["cache_blocks"]
        assert (worker.stats()["evicted_blocks"] > 0) == (cache_blocks < 4096)


def test_evicted_blocks_are_removed_one_by_one_before_the_store(context):
    with subscribed(context, cache_blocks=8) as (worker, subscriber):
        for first in range(1000, 1003):
            complete(worker, [first] * (4 * BLOCK))
            subscriber.receive()
        kinds = [event["type"] for event in events_of(subscriber.batches[-1][1])]
        assert kinds[-1] == "BlockStored"
        assert set(kinds[:-1]) == {"BlockRemoved"}
        assert len(kinds) > 2


def test_a_replay_from_0_is_the_live_stream(context):
    with subscribed(context) as (worker, subscriber):
        for i in range(20):
            complete(worker, list(range(i * 7, i * 7 + 3 * BLOCK)), max_tokens=BLOCK)
        everything = subscriber.replay(0)
        assert [number for number, _ in everything] == list(range(len(everything)))
        subscriber.receive_through(everything[-1][0])
        first = subscriber.batches[0][0]
        assert subscriber.batches == everything[first:]
        assert subscriber.replay(everything[-1][0]) == everything[-1:]
        assert subscriber.replay(len(everything)) == []
        assert subscriber.replay(END) == []


def test_a_replay_begins_where_the_buffer_does(context):
    with subscribed(context, kv_events_buffer_steps=3) as (worker, subscriber):
        for i in range(5):
            complete(worker, [1000 + i] * BLOCK)
        subscriber.receive_through(subscriber.batches[-1][0] + 5)
        assert subscriber.replay(0) == subscriber.batches[-3:]


def test_a_request_for_a_replay_that_is_none_gets_no_response(context):
    with subscribed(context) as (_, subscriber):
        for request in ([b"12345678"], [b"", b"1234567"], [b"", b"12345678", b""]):
            subscriber.dealer.send_multipart(request)
        assert subscriber.replay(0)[0][0] == 0


def test_a_reset_is_announced_with_the_next_step(context):
    with subscribed(context) as (worker, subscriber):
        prompt = list(range(3 * BLOCK))
        complete(worker, prompt)
        subscriber.receive()
        ask(worker, "/reset_prefix_cache")
        ask(worker, "/reset_prefix_cache")
        assert subscriber.replay(0)[-1] == subscriber.batches[-1]
        assert complete(worker, prompt) == 0
        subscriber.receive()
        cleared, again, stored = events_of(subscriber.batches[-1][1])
        assert cleared == again == {"type": "AllBlocksCleared"}
        assert stored["token_ids"] == prompt


def test_a_reset_under_a_running_request_removes_what_it_does_not_hold(context):
    with subscribed(context, engine="quick") as (worker, subscriber):
        body = {"prompt": [5] * BLOCK, "max_tokens": 4000, "stream": True}
        connection = http.client.HTTPConnection("127.0.0.1", worker.port, timeout=30)
        with contextlib.closing(connection):
            connection.request("POST", "/v1/completions", json.dumps(body))
            subscriber.receive()
            (held,) = events_of(subscriber.batches[-1][1])[-1]["block_hashes"]
            before = worker.stats()["cache_blocks"]
            ask(worker, "/reset_prefix_cache")
            complete(worker, [6] * BLOCK)
            seen = []
            while not seen or seen[-1]["type"] != "BlockStored":
                subscriber.receive()
                seen += events_of(subscriber.batches[-1][1])
            *removed, stored = seen
            assert {event["type"] for event in removed} == {"BlockRemoved"}
            assert len(removed) == before - 1
            assert [held] not in [event["block_hashes"] for event in removed]
            assert stored["token_ids"] == [6] * BLOCK


def test_events_do_not_wait_for_the_next_request(context):
    with subscribed(context, engine="quick") as (worker, subscriber):
        complete(worker, [5] * BLOCK, max_tokens=BLOCK)
        subscriber.receive()
        subscriber.receive()
        assert len(events_of(subscriber.batches[-1][1])) == 1


def test_dropped_batches_leave_a_gap_that_a_replay_fills(context):
    with subscribed(context) as (worker, subscriber):
        last = subscriber.batches[-1][0]
        worker.set_faults(kv_drop_batches=2)
        for i in range(4):
            complete(worker, [1000 + i] * BLOCK)
        assert [subscriber.receive(), subscriber.receive()] == [last + 3, last + 4]
        assert [number for number, _ in subscriber.replay(last + 1)] == [last + i for i in range(1, 5)]


def test_garbage_has_the_number_of_its_batch_and_replays_are_well(context):
    with subscribed(context) as (worker, subscriber):
        last = subscriber.batches[-1][0]
        worker.set_faults(kv_garbage_batches=1)
        complete(worker, [1000] * BLOCK)
        complete(worker, [1001] * BLOCK)
        assert [subscriber.receive(), subscriber.receive()] == [last + 1, last + 2]
        with pytest.raises((ValueError, msgpack.exceptions.UnpackException)):
            msgpack.unpackb(subscriber.batches[-2][1])
        events_of(subscriber.batches[-1][1])
        assert events_of(subscriber.replay(last + 1)[0][1])[0]["token_ids"] == [1000] * BLOCK


def test_a_stalled_publisher_sends_what_waits_when_the_stall_ends(context):
    with subscribed(context) as (worker, subscriber):
        last = subscriber.batches[-1][0]
        worker.set_faults(kv_stall=True)
        complete(worker, [1000] * BLOCK)
        complete(worker, [1001] * BLOCK)
        subscriber.dealer.send_multipart([b"", (last + 1).to_bytes(8, "big")])
        assert not subscriber.socket.poll(50)
        assert not subscriber.dealer.poll(50)
        worker.set_faults()
        assert [subscriber.receive(), subscriber.receive()] == [last + 1, last + 2]
        assert subscriber.dealer.recv_multipart()[2] == (last + 1).to_bytes(8, "big")


def test_a_stall_longer_than_the_buffer_loses_its_first_batches(context):
    with subscribed(context, kv_events_buffer_steps=2) as (worker, subscriber):
        last = subscriber.batches[-1][0]
        worker.set_faults(kv_stall=True)
        for i in range(5):
            complete(worker, [1000 + i] * BLOCK)
        worker.set_faults()
        subscriber.receive_through(last + 5)
        heard = [number for number, _ in subscriber.batches if number > last]
        assert heard == list(range(heard[0], last + 6))
        assert heard[0] > last + 1


def test_a_restart_empties_the_cache_and_numbers_from_0(context):
    with subscribed(context) as (worker, subscriber):
        prompt = list(range(3 * BLOCK))
        complete(worker, prompt)
        subscriber.receive()
        worker.restart_kv_events()
        assert worker.stats()["cache_blocks"] == 0
        assert subscriber.replay(0) == []
        assert complete(worker, prompt) == 0
        assert subscriber.receive() == 0
        (stored,) = events_of(subscriber.batches[-1][1])
        assert (stored["parent_block_hash"], stored["token_ids"]) == (None, prompt)


def test_a_worker_says_where_its_events_are():
    with SimulatedWorker(**FAST, **PORTS, kv_events_buffer_steps=77) as worker:
        assert get(worker, "/kv_event_sources") == {
            "0": {
                "enable_kv_cache_events": True,
                "publisher": "zmq",
                "endpoint": f"tcp://127.0.0.1:{worker.kv_events_port}",
                "replay_endpoint": f"tcp://127.0.0.1:{worker.kv_events_replay_port}",
                "buffer_steps": 77,
                "hwm": 100_000,
                "topic": "",
            }
        }
    with SimulatedWorker(**FAST, kv_events_port=0) as worker:
        assert get(worker, "/kv_event_sources")["0"]["replay_endpoint"] is None
        assert worker.kv_events_replay_port is None


def test_a_worker_without_events_has_no_sources():
    with SimulatedWorker(**FAST) as worker:
        assert get(worker, "/kv_event_sources") == {}
        assert worker.kv_events_port is None
        with pytest.raises(OSError, match="publishes no KV events; start it with kv_events_port"):
            worker.restart_kv_events()


def test_ports_are_free_again_after_the_end_and_a_port_in_use_is_named():
    with SimulatedWorker(**FAST, **PORTS) as worker:
        port = worker.kv_events_port
        with pytest.raises(OSError, match=f"cannot listen on tcp://127.0.0.1:{port}: Address already in use"):
            SimulatedWorker(**FAST, kv_events_port=port)
    with SimulatedWorker(**FAST, kv_events_port=port) as worker:
        assert worker.kv_events_port == port


def test_options_out_of_range_are_named():
    with pytest.raises(ValueError, match="kv_events_port is 65536; it must be from -1 to 65535"):
        SimulatedWorker(kv_events_port=65536)
    with pytest.raises(ValueError, match="kv_events_buffer_steps is 0; it must be from 1"):
        SimulatedWorker(kv_events_buffer_steps=0)
    with pytest.raises(ValueError, match="kv_events_replay_port is 0, and there are no KV events"):
        SimulatedWorker(kv_events_replay_port=0)


def test_a_crash_closes_the_ports():
    with SimulatedWorker(**FAST, **PORTS, crash_after=1) as worker:
        complete(worker, [1])
        with contextlib.suppress(OSError):
            complete(worker, [1])
        eventually(lambda: worker.crashed)
        port = worker.kv_events_port

        def is_free() -> bool:
            try:
                SimulatedWorker(**FAST, kv_events_port=port).stop()
            except OSError:
                return False
            return True

        eventually(is_free)
