"""vllm_router.testing.KvEventPublisher, against sockets of pyzmq and our decoder."""

import builtins
import contextlib
import importlib
import sys
import threading

import pytest

from vllm_router.testing import KvEventPublisher

msgpack = pytest.importorskip("msgpack")
zmq = pytest.importorskip("zmq")

PATIENCE_MS = 30_000


@pytest.fixture
def listen():
    """Connects a SUB and a DEALER to a publisher; returns two functions: the next batch, and a replay."""
    with zmq.Context() as context, contextlib.ExitStack() as closing:

        def connect(publisher, topic=b""):
            sockets = [context.socket(kind) for kind in (zmq.SUB, zmq.DEALER)]
            for socket in sockets:
                closing.callback(socket.close)
                socket.linger = 0
                socket.rcvtimeo = PATIENCE_MS
            subscriber, dealer = sockets
            subscriber.subscribe(topic)
            subscriber.connect(publisher.endpoint)
            publisher.wait_for_subscribers()

            def receive():
                heard_topic, number, payload = subscriber.recv_multipart()
                assert heard_topic == topic
                return int.from_bytes(number, "big"), payload

            def replay(start):
                dealer.connect(publisher.replay_endpoint)
                dealer.send_multipart([b"", start.to_bytes(8, "big")])
                responses = []
                while True:
                    *empty, heard_topic, number, payload = dealer.recv_multipart()
                    assert empty == [b""]
                    if number == b"\xff" * 8:
                        assert (heard_topic, payload) == (b"", b"")
                        return responses
                    assert heard_topic == topic
                    responses.append((int.from_bytes(number, "big"), payload))

            receive.socket = subscriber
            return receive, replay

        yield connect


def events_of(batch):
    return msgpack.unpackb(batch[1])[1]


def test_the_default_is_the_shape_of_vllm(listen):
    with KvEventPublisher() as events:
        receive, _ = listen(events)
        hashes = events.stored(range(32))
        number, payload = receive()
        seconds, (stored,), rank = msgpack.unpackb(payload)
        assert (number, rank) == (0, 0)
        assert isinstance(seconds, float)
        assert list(stored.items()) == [
            ("type", "BlockStored"),
            ("block_hashes", hashes),
            ("parent_block_hash", None),
            ("token_ids", list(range(32))),
            ("block_size", 16),
            ("lora_id", None),
            ("medium", "GPU"),
            ("lora_name", None),
            ("extra_keys", [None, None]),
            ("group_idx", 0),
            ("kv_cache_spec_kind", "full_attention"),
        ]
        (longer,) = events.stored(range(16), hashes[-1], "CPU")
        (stored,) = events_of(receive())
        assert (stored["parent_block_hash"], stored["medium"]) == (hashes[-1], "CPU")
        events.removed([longer, hashes[0]], "CPU")
        removed = {"type": "BlockRemoved", "medium": "CPU", "group_idx": 0}
        assert events_of(receive()) == [removed | {"block_hashes": [block]} for block in (longer, hashes[0])]
        events.cleared()
        assert events_of(receive()) == [{"type": "AllBlocksCleared"}]


def test_hashes_are_those_of_vllm():
    # As a vLLM 0.32 announced it: sha256, without PYTHONHASHSEED.
    text = "1 1986 201 349 78 304 1446 636 14 2074 570 1503 561 287 3199 309 1711 2 201 1 849 382 559 201"
    prompt = [int(token) for token in text.split()] + [1315, 67, 4] + [785] * 5
    with KvEventPublisher(block_size=32) as events:
        assert events.stored(prompt) == [1474408881465549306]


def test_hashes_are_a_chain():
    with KvEventPublisher(block_size=4) as events:
        chain = events.stored([1, 2, 3, 4, 5, 6, 7, 8])
        assert events.stored([1, 2, 3, 4]) == chain[:1]
        assert events.stored([5, 6, 7, 8], chain[0]) == chain[1:]
        assert events.stored([5, 6, 7, 8]) != chain[1:]
        assert all(0 <= block < 1 << 64 for block in chain)
    with KvEventPublisher("sglang", block_size=4) as events:
        assert [block % (1 << 64) for block in events.stored([1, 2, 3, 4, 5, 6, 7, 8])] == chain


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("shape", ["A", "B", "C"])
def test_our_decoder_reads_every_shape(listen, engine, shape):
    testing = pytest.importorskip("vllm_router._core_testing")
    with KvEventPublisher(engine, shape, block_size=2, rank=3) as events:
        receive, _ = listen(events)
        with events.batch():
            first = events.stored([1, 2, 3, 4], medium="CPU")
            events.stored([5, 6], parent=first[-1], lora_name="tuned", extra_keys=[["tuned"]])
            events.removed(first[:1])
            events.cleared()
        batch = testing.decode_kv_batch(receive()[1])
    assert batch["rank"] == 3
    assert batch["dropped"] == {}
    stored, child, removed, cleared = batch["events"]
    hashes = [block % (1 << 64) for block in first]
    assert (stored["kind"], stored["hashes"], stored["tokens"]) == ("stored", hashes, [1, 2, 3, 4])
    assert (child["parent"], child["lora_name"], child["block_size"]) == (hashes[-1], b"tuned", 2)
    assert (removed["kind"], removed["hashes"]) == ("removed", hashes[:1])
    assert cleared["kind"] == "cleared"


def test_a_batch_is_sent_at_the_end_of_its_block(listen):
    with KvEventPublisher() as events:
        receive, _ = listen(events)
        with events.batch():
            pass
        with events.batch():
            hashes = events.stored(range(16))
            events.removed(hashes)
            assert events.next_seq == 0
        assert [event["type"] for event in events_of(receive())] == ["BlockStored", "BlockRemoved"]
        assert events.next_seq == 1


def test_dropped_batches_are_replayed(listen):
    with KvEventPublisher(topic="kv") as events:
        receive, replay = listen(events, b"kv")
        events.drop(2)
        for _ in range(4):
            events.cleared()
        live = [receive(), receive()]
        assert [number for number, _ in live] == [2, 3]
        assert [number for number, _ in replay(0)] == [0, 1, 2, 3]
        assert replay(2) == live
        assert replay(4) == []


def test_a_replay_begins_where_the_buffer_does(listen):
    with KvEventPublisher(buffer_steps=2) as events:
        receive, replay = listen(events)
        for _ in range(5):
            events.cleared()
        assert replay(0) == [receive() for _ in range(5)][-2:]
        events.repeat(4)
        assert receive()[0] == 4
        with pytest.raises(ValueError, match="seq is 2; the batches kept are the last 2 before 5"):
            events.repeat(2)


def test_a_restart_numbers_from_0(listen):
    with KvEventPublisher() as events:
        receive, replay = listen(events)
        events.cleared()
        events.cleared()
        events.restart()
        assert replay(0) == []
        events.cleared()
        assert [receive()[0] for _ in range(3)] == [0, 1, 0]


def test_a_stall_holds_batches_and_replays(listen):
    with KvEventPublisher() as events:
        receive, replay = listen(events)
        events.stall()
        events.cleared()
        events.cleared()
        replayed = []
        waiter = threading.Thread(target=lambda: replayed.extend(replay(0)))
        waiter.start()
        assert not receive.socket.poll(50)
        assert not replayed
        events.resume()
        assert [receive()[0], receive()[0]] == [0, 1]
        waiter.join()
        assert [number for number, _ in replayed] == [0, 1]


def test_garbage_is_a_batch_like_others(listen):
    with KvEventPublisher() as events:
        receive, replay = listen(events)
        events.garbage(b"\xc1garbage")
        assert receive() == (0, b"\xc1garbage")
        events.cleared()
        assert receive()[0] == 1
        assert replay(0)[0] == (0, b"\xc1garbage")


def test_without_replays_there_is_no_second_port():
    with KvEventPublisher(replay=False) as events:
        assert events.replay_endpoint is None
        assert events.endpoint.startswith("tcp://127.0.0.1:")
        assert repr(events) == f"<KvEventPublisher {events.endpoint}, shape B, next_seq 0>"


def test_closing_ends_a_stalled_replay(listen):
    with KvEventPublisher() as events:
        listen(events)
        with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
            dealer.linger = 0
            dealer.connect(events.replay_endpoint)
            events.stall()
            dealer.send_multipart([b"", bytes(8)])
            events.close()
            events.close()


def test_no_subscriber_is_an_error_after_the_timeout():
    with KvEventPublisher() as events, pytest.raises(TimeoutError, match="has 0 subscriptions after 0 s"):
        events.wait_for_subscribers(timeout=0)


def test_what_cannot_be_is_named():
    with pytest.raises(ValueError, match="engine is 'trt'; it must be one of vllm, sglang"):
        KvEventPublisher("trt")
    with pytest.raises(ValueError, match="shape is 'D'; it must be one of A, B, C"):
        KvEventPublisher(shape="D")
    with pytest.raises(ValueError, match="buffer_steps is 0; it must be 1 or more"):
        KvEventPublisher(buffer_steps=0)
    with KvEventPublisher() as events:
        for tokens in ([], range(17)):
            with pytest.raises(ValueError, match=f"tokens has {len(tokens)} tokens; .* 16, the block size"):
                events.stored(tokens)
        with pytest.raises(ValueError, match="hashes has 2 items; it must have 1"):
            events.stored(range(16), hashes=[1, 2])
        assert events.next_seq == 0


def test_a_missing_package_is_named_with_the_extra_that_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "zmq", None)
    with pytest.raises(ImportError, match=r"needs pyzmq, .* pip install 'vllm-router\[testing\]'"):
        KvEventPublisher()
    imported = builtins.__import__

    def without_zmq(name, *arguments):
        assert name.partition(".")[0] not in ("zmq", "msgpack")
        return imported(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without_zmq)
    importlib.reload(importlib.import_module("vllm_router._kv_event_publisher"))
