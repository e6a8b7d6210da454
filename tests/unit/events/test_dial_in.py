"""cpp/events/dial_in.h: publishers that connect to the router."""

import contextlib
import json
import re
import struct

import pytest
import zmq

from tests.fakes.kv_engine import MODEL, TOKENS, Engine, claim, client_of, open_router, sources
from tests.fakes.wire import eventually, response, wait_until_logged
from vllm_router.testing import KvEventPublisher

BIND = "tcp://127.0.0.1:*"


def listeners(harness, router):
    return json.loads(client_of(harness, router).ask("GET", "/admin/kv-events").body)["listeners"]


def endpoint_of(harness, router):
    eventually(lambda: [entry["bound"] for entry in listeners(harness, router)] == [True])
    return listeners(harness, router)[0]["endpoint"]


def topic_of(worker):
    return f"kv@127.0.0.1:{worker.port}@{MODEL}"


def publish_until_heard(harness, router, publisher, worker, rank=0):
    """The first batches of a publisher that connects may be sent before it has."""
    publisher.wait_for_subscribers()
    publisher.stored([999] * 16)

    def heard():
        return any((s["worker"], s["rank"]) == (worker.url, rank) for s in sources(harness, router))

    eventually(heard)


def source_of(harness, router, worker, rank=0):
    (found,) = [s for s in sources(harness, router) if (s["worker"], s["rank"]) == (worker.url, rank)]
    return found


def wait_for(harness, router, worker, rank=0, **expected):
    def reached():
        source = source_of(harness, router, worker, rank)
        return all(source[name] == value for name, value in expected.items())

    eventually(reached, f"never {expected}")
    return source_of(harness, router, worker, rank)


@pytest.fixture
def stack():
    with contextlib.ExitStack() as stack:
        yield stack


def test_three_publishers_share_a_socket(harness, stack):
    workers = [harness.worker(Engine()) for _ in range(3)]
    router = open_router(harness, *workers, kv_events_bind=[BIND])
    endpoint = endpoint_of(harness, router)
    publishers = [
        stack.enter_context(KvEventPublisher(replay=False, connect=endpoint, topic=topic_of(worker)))
        for worker in workers
    ]
    for worker, publisher in zip(workers, publishers, strict=True):
        publish_until_heard(harness, router, publisher, worker)
    for step in range(20):
        for i, publisher in enumerate(publishers):
            publisher.stored([100 * i + step] * 16)
    publishers[1].stored(TOKENS)
    for worker in workers:
        found = wait_for(
            harness, router, worker, trust="exact", gpu_blocks=25 if worker is workers[1] else 21
        )
        assert found["lost_batches"] == 0
        assert found["connected"]
        assert found["endpoint"] == endpoint
        assert found["replay_endpoint"] == ""
    assert claim(harness, router) == (4, workers[1].url)


def test_a_lower_number_is_a_restart_of_that_worker_only(harness, stack):
    workers = [harness.worker(Engine()) for _ in range(2)]
    router = open_router(harness, *workers, kv_events_bind=[BIND])
    endpoint = endpoint_of(harness, router)
    first, second = (
        stack.enter_context(KvEventPublisher(replay=False, connect=endpoint, topic=topic_of(worker)))
        for worker in workers
    )
    for worker, publisher in ((workers[0], first), (workers[1], second)):
        publish_until_heard(harness, router, publisher, worker)
        publisher.stored(TOKENS)
        wait_for(harness, router, worker, gpu_blocks=5)
    first.restart()
    first.stored([9] * 16)
    found = wait_for(harness, router, workers[0], gpu_blocks=1, trust="exact")
    assert found["incarnations"] == {"sequence": 1}
    assert source_of(harness, router, workers[1])["incarnation"] == 0
    assert claim(harness, router) == (4, workers[1].url)


def test_a_lost_batch_stays_lost(harness, stack):
    worker = harness.worker(Engine())
    router = open_router(harness, worker, kv_events_bind=[BIND])
    publisher = stack.enter_context(
        KvEventPublisher(replay=False, connect=endpoint_of(harness, router), topic=topic_of(worker))
    )
    publish_until_heard(harness, router, publisher, worker)
    publisher.drop(2)
    for i in range(3):
        publisher.stored([i] * 16)
    found = wait_for(harness, router, worker, trust="partial", lost_batches=2)
    assert found["gpu_blocks"] == 2
    publisher.cleared()
    wait_for(harness, router, worker, trust="exact", gpu_blocks=0)


def test_each_rank_has_numbers_of_its_own(harness, stack):
    worker = harness.worker(Engine())
    router = open_router(harness, worker, kv_events_bind=[BIND])
    endpoint = endpoint_of(harness, router)
    for rank in (0, 3):
        publisher = stack.enter_context(
            KvEventPublisher(replay=False, connect=endpoint, topic=topic_of(worker), rank=rank)
        )
        publish_until_heard(harness, router, publisher, worker, rank)
        publisher.stored([rank] * 16)
    for rank in (0, 3):
        wait_for(harness, router, worker, rank, trust="exact", gpu_blocks=2, next_number=2)


def test_a_rank_above_the_limit_is_nobodys(harness, stack, capfd):
    worker = harness.worker(Engine())
    router = open_router(harness, worker, kv_events_bind=[BIND])
    publisher = stack.enter_context(
        KvEventPublisher(replay=False, connect=endpoint_of(harness, router), topic=topic_of(worker), rank=256)
    )
    publisher.wait_for_subscribers()
    publisher.stored([1] * 16)
    eventually(lambda: listeners(harness, router)[0]["unknown_worker"] == 1)
    wait_until_logged(capfd, "comes with a data-parallel rank that is not 0 to 255; its events are not used")
    assert sources(harness, router) == []


def test_a_topic_of_no_worker_is_counted_and_said_once(harness, stack, capfd):
    worker = harness.worker(Engine())
    router = open_router(harness, worker, kv_events_bind=[BIND])
    publisher = stack.enter_context(
        KvEventPublisher(replay=False, connect=endpoint_of(harness, router), topic="kv@10.1.2.3:1@m")
    )
    publisher.wait_for_subscribers()
    for i in range(5):
        publisher.stored([i] * 16)
    eventually(lambda: listeners(harness, router)[0]["unknown_worker"] == 5)
    said = re.findall(
        r"a topic at tcp://127.0.0.1:\d+, \"kv@10.1.2.3:1@m\", names no worker", capfd.readouterr().err
    )
    assert len(said) == 1
    assert sources(harness, router) == []


def test_a_host_with_several_workers_needs_the_port(harness, stack, capfd):
    workers = [harness.worker(Engine()) for _ in range(2)]
    router = open_router(harness, *workers, kv_events_bind=[BIND])
    publisher = stack.enter_context(
        KvEventPublisher(replay=False, connect=endpoint_of(harness, router), topic="kv@127.0.0.1@m")
    )
    publisher.wait_for_subscribers()
    publisher.stored([1] * 16)
    wait_until_logged(capfd, "names a host on which several workers are; add the worker's port")
    assert sources(harness, router) == []


def test_other_topics_do_not_reach_the_router(harness, stack):
    worker = harness.worker(Engine())
    router = open_router(harness, worker, kv_events_bind=[BIND])
    endpoint = endpoint_of(harness, router)
    other = stack.enter_context(KvEventPublisher(replay=False, connect=endpoint, topic="kvcache"))
    publisher = stack.enter_context(KvEventPublisher(replay=False, connect=endpoint, topic=topic_of(worker)))
    other.wait_for_subscribers()
    for i in range(10):
        other.stored([i] * 16)
    publish_until_heard(harness, router, publisher, worker)
    assert listeners(harness, router) == [
        {"endpoint": endpoint, "bound": True, "unknown_worker": 0, "malformed": 0}
    ]


def test_garbage_is_its_senders_loss(harness, stack):
    workers = [harness.worker(Engine()) for _ in range(2)]
    router = open_router(harness, *workers, kv_events_bind=[BIND])
    endpoint = endpoint_of(harness, router)
    bad, good = (
        stack.enter_context(KvEventPublisher(replay=False, connect=endpoint, topic=topic_of(worker)))
        for worker in workers
    )
    publish_until_heard(harness, router, good, workers[1])
    bad.wait_for_subscribers()
    for _ in range(300):
        bad.garbage(b"\xff\x00 no batch")
    good.stored(TOKENS)
    eventually(lambda: listeners(harness, router)[0]["malformed"] == 300)
    wait_for(harness, router, workers[1], trust="exact", gpu_blocks=5)
    assert claim(harness, router) == (4, workers[1].url)


def test_a_worker_that_leaves_takes_its_source_along(harness, stack):
    workers = [harness.worker(Engine()) for _ in range(2)]
    router = open_router(harness, *workers, kv_events_bind=[BIND])
    publisher = stack.enter_context(
        KvEventPublisher(replay=False, connect=endpoint_of(harness, router), topic=topic_of(workers[0]))
    )
    publish_until_heard(harness, router, publisher, workers[0])
    publisher.stored(TOKENS)
    wait_for(harness, router, workers[0], gpu_blocks=5)
    router.core.remove_worker(workers[0].url)
    eventually(lambda: sources(harness, router) == [])
    publisher.stored([1] * 16)
    eventually(lambda: listeners(harness, router)[0]["unknown_worker"] == 1)
    assert claim(harness, router) == (0, workers[1].url)


def test_resync_drops_what_is_known(harness, stack):
    worker = harness.worker(Engine())
    router = open_router(harness, worker, kv_events_bind=[BIND])
    publisher = stack.enter_context(
        KvEventPublisher(replay=False, connect=endpoint_of(harness, router), topic=topic_of(worker))
    )
    publish_until_heard(harness, router, publisher, worker)
    wait_for(harness, router, worker, gpu_blocks=1)
    reply = client_of(harness, router).ask("POST", f"/admin/kv-events/resync?url={worker.url}")
    assert reply.status == 202
    wait_for(harness, router, worker, gpu_blocks=0, trust="waiting")
    publisher.stored([2] * 16)
    wait_for(harness, router, worker, gpu_blocks=1, trust="partial")


def test_a_worker_with_an_endpoint_of_its_own_is_heard_there(harness, stack, publisher):
    worker = harness.worker(Engine(publisher))
    router = open_router(harness, worker, kv_events_bind=[BIND])
    connecting = stack.enter_context(
        KvEventPublisher(replay=False, connect=endpoint_of(harness, router), topic=topic_of(worker))
    )
    connecting.wait_for_subscribers()
    connecting.stored(TOKENS)
    eventually(lambda: listeners(harness, router)[0]["unknown_worker"] == 1)
    publisher.stored(TOKENS)
    wait_for(harness, router, worker, gpu_blocks=4, endpoint=publisher.endpoint)


def test_a_port_in_use_is_said_and_the_router_serves(harness, stack, capfd):
    taken = stack.enter_context(KvEventPublisher(replay=False))
    worker = harness.worker(Engine())
    router = open_router(harness, worker, kv_events_bind=[taken.endpoint])
    wait_until_logged(capfd, f"--kv-events-bind {taken.endpoint} cannot be bound: ")
    assert claim(harness, router)[1] == worker.url
    assert [entry["bound"] for entry in listeners(harness, router)] == [False]


@pytest.mark.parametrize("endpoint", ["tcp://*", "http://*:5557", "tcp://*:99999"])
def test_a_wrong_endpoint_refuses_the_start(harness, endpoint):
    with pytest.raises(ValueError, match=r"kv_events_bind: endpoint .* cannot be bound; write"):
        open_router(harness, harness.worker(Engine()), kv_events_bind=[endpoint])


class Ailing(Engine):
    """Its health check fails while it is told to."""

    ill = False

    def __call__(self, connection, message):
        if message.target == "/health":
            connection.send(response(503 if self.ill else 200, b"{}"))
        else:
            super().__call__(connection, message)


def test_a_worker_that_failed_may_have_restarted(harness, stack):
    engine = Ailing()
    worker = harness.worker(engine)
    router = open_router(
        harness,
        worker,
        kv_events_bind=[BIND],
        health_check_interval_secs=0.05,
        health_failure_threshold=1,
        health_success_threshold=1,
    )
    publisher = stack.enter_context(
        KvEventPublisher(replay=False, connect=endpoint_of(harness, router), topic=topic_of(worker))
    )
    publish_until_heard(harness, router, publisher, worker)
    publisher.stored(TOKENS)
    wait_for(harness, router, worker, trust="exact", gpu_blocks=5)
    engine.ill = True
    wait_for(harness, router, worker, connected=False)
    engine.ill = False
    # Its numbers go on, as those of an engine that restarted and came as far again would.
    publisher.stored([1] * 16)
    found = wait_for(harness, router, worker, connected=True, gpu_blocks=1, trust="partial")
    assert found["incarnations"] == {"evidence": 1}


def two_workers(harness, stack):
    """Two workers, their router, where it listens, and a publisher of the second that is heard."""
    workers = [harness.worker(Engine()) for _ in range(2)]
    router = open_router(harness, *workers, kv_events_bind=[BIND])
    endpoint = endpoint_of(harness, router)
    second = KvEventPublisher(replay=False, connect=endpoint, topic=topic_of(workers[1]))
    publish_until_heard(harness, router, stack.enter_context(second), workers[1])
    return workers, router, endpoint


def test_a_publisher_that_is_gone_is_not_exact_and_its_neighbour_is(harness, stack):
    workers, router, endpoint = two_workers(harness, stack)
    with KvEventPublisher(replay=False, connect=endpoint, topic=topic_of(workers[0])) as leaves:
        publish_until_heard(harness, router, leaves, workers[0])
        leaves.stored(TOKENS)
        wait_for(harness, router, workers[0], trust="exact", connected=True, gpu_blocks=5)
    wait_for(harness, router, workers[0], trust="partial", connected=False, gpu_blocks=5)
    found = source_of(harness, router, workers[1])
    assert (found["trust"], found["connected"]) == ("exact", True)
    again = stack.enter_context(KvEventPublisher(replay=False, connect=endpoint, topic=topic_of(workers[0])))
    publish_until_heard(harness, router, again, workers[0])
    found = wait_for(harness, router, workers[0], trust="exact", connected=True, gpu_blocks=1)
    assert found["incarnations"] == {"sequence": 1}


def connected_publisher(stack, endpoint):
    """A socket that sends whatever it is given, once the router has subscribed."""
    context = stack.enter_context(zmq.Context())
    socket = stack.enter_context(context.socket(zmq.XPUB))
    socket.linger = 0
    socket.sndhwm = 0
    socket.connect(endpoint)
    socket.recv()
    return socket


def send_batch(socket, worker, rank, number, events=b"\x90"):
    payload = b"\x93\xcb" + struct.pack(">d", 1.0) + events + b"\xcc" + bytes([rank])
    socket.send_multipart([topic_of(worker).encode(), struct.pack(">Q", number), payload])


def test_another_connection_that_goes_on_at_once_has_missed_nothing(harness, stack):
    worker = harness.worker(Engine())
    router = open_router(harness, worker, kv_events_bind=[BIND])
    endpoint = endpoint_of(harness, router)
    first, second = connected_publisher(stack, endpoint), connected_publisher(stack, endpoint)
    send_batch(first, worker, 0, 0)
    eventually(lambda: [s["trust"] for s in sources(harness, router)] == ["exact"])
    send_batch(second, worker, 0, 1)
    found = wait_for(harness, router, worker, next_number=2, connected=True)
    assert (found["reconnects"], found["trust"]) == (1, "exact")  # both came within two seconds


def test_a_worker_with_many_ranks_takes_no_other_workers_place(harness, stack):
    """cpp/events/dial_in.h: kMaxFeeds"""
    *many, last = [harness.worker(Engine()) for _ in range(9)]
    router = open_router(harness, *many, last, kv_events_bind=[BIND])
    publisher = connected_publisher(stack, endpoint_of(harness, router))
    for worker in many:
        for rank in range(256):
            send_batch(publisher, worker, rank, 0)
    eventually(lambda: len(sources(harness, router)) == 2048)
    send_batch(publisher, last, 0, 0)
    eventually(lambda: any(s["worker"] == last.url for s in sources(harness, router)))
    found = sources(harness, router)
    assert len(found) == 2048
    counts = [sum(s["worker"] == worker.url for s in found) for worker in many]
    assert sorted(counts) == [255] + [256] * 7


def large_orphan(parent):
    """An event in vLLM's shape, of 1,900 blocks of 4,096 tokens behind a block that nothing knows."""
    blocks, size = 1900, 4096
    names = b"".join(b"\xce" + struct.pack(">I", i) for i in range(blocks))
    hashes = b"\xdc" + struct.pack(">H", blocks) + names
    tokens = b"\xdd" + struct.pack(">I", blocks * size) + b"\x07" * (blocks * size)
    parents = b"\xcf" + struct.pack(">Q", parent)
    stored = b"\x95\xabBlockStored" + hashes + parents + tokens + b"\xcd" + struct.pack(">H", size)
    return b"\x91" + stored


def test_what_waits_for_its_parent_is_bounded_for_all_feeds(harness, stack):
    """cpp/events/dial_in.h: kMaxWaitingBytes. The feed with the most ends, and its neighbour goes on."""
    workers, router, endpoint = two_workers(harness, stack)
    flood = connected_publisher(stack, endpoint)

    def send(rank, number):
        send_batch(flood, workers[0], rank, number, large_orphan(10**15 + number))

    def ranks():
        found = [s for s in sources(harness, router) if s["worker"] == workers[0].url]
        return {s["rank"]: s["orphan_blocks"] for s in found}

    for rank in range(4):  # some 60 MiB each
        send(rank, 0)
        send(rank, 1)
    eventually(lambda: ranks() == dict.fromkeys(range(4), 3800))
    send(4, 0)
    eventually(lambda: ranks().get(4) == 1900)
    assert len(ranks()) == 4
    found = source_of(harness, router, workers[1])
    assert (found["trust"], found["connected"]) == ("exact", True)
