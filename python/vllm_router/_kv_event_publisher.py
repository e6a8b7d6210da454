"""KvEventPublisher: publishes KV events as an engine does, so that a test decides what a router hears."""

from __future__ import annotations

import collections
import contextlib
import hashlib
import importlib
import pickle
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any

from vllm_router._messages import quoted

_END_OF_REPLAY = b"\xff" * 8
_ENGINES = ("vllm", "sglang")
_SHAPES = ("A", "B", "C")


def _imported(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(
            f"KvEventPublisher needs {package}, which is not installed; install it with: "
            "pip install 'vllm-router[testing]'"
        ) from None


class KvEventPublisher:
    """Publishes KV events over ZeroMQ on free ports of 127.0.0.1, as vLLM and SGLang do.

    A message has three frames: the topic, the number of its batch (8 bytes, big-endian, from 0) and a
    MessagePack payload. Each call that makes an event sends a batch of its own, except within `batch()`. All
    methods may be called from any thread; a thread of its own serves replays.

        with KvEventPublisher() as events:
            connect(events.endpoint)
            events.wait_for_subscribers()
            hashes = events.stored(range(32))       # batch 0
            events.removed(hashes[1:])              # batch 1

    Args:
        engine: `"vllm"`: hashes are unsigned; `"sglang"`: they are signed.
        shape: of the payload. `"A"`: arrays (vLLM up to 0.23, SGLang); `"B"`: an array of maps (vLLM from
            0.24); `"C"`: maps (a development version of vLLM).
        replay: whether to respond to requests for replays.
        buffer_steps: number of batches kept for replays and `repeat()`.
        block_size: tokens of a block.
        topic: the first frame of each message.
        rank: the data-parallel rank in each payload.
        connect: the endpoint of a bound subscriber, such as a router with `--kv-events-bind`, to which it
            connects; None: it is bound itself, for subscribers that connect.

    Raises:
        ImportError: pyzmq or msgpack is not installed; `pip install 'vllm-router[testing]'` installs both.
        ValueError: an unknown engine or shape, or a number below 1.
    """

    def __init__(
        self,
        engine: str = "vllm",
        shape: str = "B",
        replay: bool = True,
        buffer_steps: int = 10_000,
        block_size: int = 16,
        *,
        topic: str = "",
        rank: int = 0,
        connect: str | None = None,
    ) -> None:
        for name, value, known in (("engine", engine, _ENGINES), ("shape", shape, _SHAPES)):
            if value not in known:
                raise ValueError(f"{name} is {quoted(value)}; it must be one of {', '.join(known)}")
        for name, number in (("buffer_steps", buffer_steps), ("block_size", block_size)):
            if number < 1:
                raise ValueError(f"{name} is {number}; it must be 1 or more")
        self._zmq = _imported("zmq", "pyzmq")
        self._msgpack = _imported("msgpack", "msgpack")
        self._signed = engine == "sglang"
        self._shape = shape
        self._block_size = block_size
        self._topic = topic.encode()
        self._rank = rank

        self._changed = threading.Condition(threading.RLock())  # guards what follows
        self._batches: collections.deque[tuple[bytes, bytes]] = collections.deque(maxlen=buffer_steps)
        self._waiting: collections.deque[tuple[bytes, bytes]] = collections.deque(maxlen=buffer_steps)
        self._digests: dict[int, bytes] = {}  # of the blocks stored; their last 8 bytes are the hashes
        self._next_seq = 0
        self._to_drop = 0
        self._stalled = False
        self._closed = False
        self._together: list[dict[str, Any]] | None = None  # of batch()
        self._subscribers = 0

        self._context = self._zmq.Context()
        # XPUB sends as PUB does, and receives the subscriptions.
        self._publisher = self._open(self._zmq.XPUB)
        self._publisher.setsockopt(self._zmq.XPUB_VERBOSER, 1)
        if connect is None:
            self._endpoint = self._bind(self._publisher)
        else:
            self._publisher.connect(connect)
            self._endpoint = connect
        self._replay_endpoint: str | None = None
        if replay:
            router = self._open(self._zmq.ROUTER)
            router.sndhwm = 2 * buffer_steps + 1000  # up to half may still count as taken by the last replay
            self._replay_endpoint = self._bind(router)
            self._stop = self._open(self._zmq.PAIR)
            self._stop.bind("inproc://stop")
            self._thread = threading.Thread(
                target=self._serve_replays, args=(router,), name="kv-event-replays", daemon=True
            )
            self._thread.start()

    @property
    def endpoint(self) -> str:
        """Where a SUB socket connects: `tcp://127.0.0.1:PORT`; with `connect`, that."""
        return self._endpoint

    @property
    def replay_endpoint(self) -> str | None:
        """Where a DEALER socket asks for a replay with `["", number]`; None without replays."""
        return self._replay_endpoint

    @property
    def next_seq(self) -> int:
        """The number of the next batch."""
        with self._changed:
            return self._next_seq

    def wait_for_subscribers(self, count: int = 1, timeout: float = 30.0) -> None:
        """Waits until there are this many subscriptions, since earlier batches do not reach them.

        Other calls wait meanwhile.

        Raises:
            TimeoutError: there are fewer after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            while self._subscribers < count:
                left = max(0.0, deadline - time.monotonic())
                if not self._publisher.poll(left * 1000):
                    raise TimeoutError(
                        f"{self._endpoint} has {self._subscribers} subscriptions after {timeout:g} s; "
                        f"it must have {count}: connect a SUB socket and subscribe"
                    )
                self._subscribers += 1 if self._publisher.recv()[:1] == b"\x01" else -1

    def stored(
        self,
        tokens: Iterable[int],
        parent: int | None = None,
        medium: str | None = "GPU",
        *,
        hashes: Sequence[int] | None = None,
        lora_name: str | None = None,
        extra_keys: Sequence[Any] | None = None,
    ) -> list[int]:
        """Blocks of `block_size` tokens each can be hit from now on.

        Args:
            tokens: token ids of whole blocks.
            parent: the hash of the block before the first of them; None: it is the first of a prompt.
            medium: the tier, as engines name it: `"GPU"`, `"CPU"`, `"STORAGE"`, ...
            hashes: of the blocks; None: those of vLLM with `sha256`, for a prompt without adapter, salt
                and media.
            lora_name: the adapter.
            extra_keys: what else the hash of each block covers, a list of keys or None for each.

        Returns:
            The hashes of the blocks.

        Raises:
            ValueError: the tokens do not fill whole blocks, or a list has another length.
        """
        ids = list(tokens)
        count, rest = divmod(len(ids), self._block_size)
        if rest or not count:
            raise ValueError(
                f"tokens has {len(ids)} tokens; it must have a multiple of {self._block_size}, the block size"
            )
        for name, given in (("hashes", hashes), ("extra_keys", extra_keys)):
            if given is not None and len(given) != count:
                raise ValueError(f"{name} has {len(given)} items; it must have {count}, one for each block")
        with self._changed:
            made = list(hashes) if hashes is not None else self._hash(ids, parent)
            self._add(
                {
                    "type": "BlockStored",
                    "block_hashes": made,
                    "parent_block_hash": parent,
                    "token_ids": ids,
                    "block_size": self._block_size,
                    "lora_id": None,
                    "medium": medium,
                    "lora_name": lora_name,
                    "extra_keys": list(extra_keys) if extra_keys is not None else [None] * count,
                    "group_idx": 0,
                    "kv_cache_spec_kind": "full_attention",
                }
            )
        return made

    def removed(self, hashes: Iterable[int], medium: str | None = "GPU") -> None:
        """These blocks can no longer be hit on this tier: an event for each of them, in one batch."""
        with self._changed, self.batch():
            for block in hashes:
                self._add({"type": "BlockRemoved", "block_hashes": [block], "medium": medium, "group_idx": 0})

    def cleared(self) -> None:
        """No block can be hit any more."""
        with self._changed:
            self._digests.clear()
            self._add({"type": "AllBlocksCleared"})

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Events within the `with` block are sent together at its end, if there are any."""
        with self._changed:  # so that no other thread's events come between
            if self._together is not None:
                yield
                return
            events: list[dict[str, Any]] = []
            self._together = events
            try:
                yield
            finally:
                self._together = None
            if events:
                self._send(self._packed(events))

    def garbage(self, payload: bytes) -> None:
        """Sends these bytes as the payload of the next batch, and keeps them for replays."""
        with self._changed:
            self._send(payload)

    def drop(self, n: int = 1) -> None:
        """The next `n` batches get their numbers and are kept for replays, but are not published."""
        with self._changed:
            self._to_drop = n

    def repeat(self, seq: int) -> None:
        """Publishes a batch again.

        Raises:
            ValueError: the batch is not among those kept.
        """
        number = seq.to_bytes(8, "big")
        with self._changed:
            for kept in self._batches:
                if kept[0] == number:
                    self._publish(kept)
                    return
            raise ValueError(
                f"seq is {seq}; the batches kept are the last {len(self._batches)} before {self._next_seq}"
            )

    def restart(self) -> None:
        """As an engine that starts anew: nothing is kept, and the next batch has number 0."""
        with self._changed:
            self._batches.clear()
            self._waiting.clear()
            self._digests.clear()
            self._next_seq = 0

    def stall(self) -> None:
        """From now on nothing is published or replayed, until `resume()`."""
        with self._changed:
            self._stalled = True

    def resume(self) -> None:
        """Publishes what waits since `stall()`, the last `buffer_steps` batches at most."""
        with self._changed:
            self._stalled = False
            while self._waiting:
                self._publish(self._waiting.popleft())
            self._changed.notify_all()

    def close(self) -> None:
        """Closes the ports. Again: nothing."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        if self._replay_endpoint is not None:
            self._stop.send(b"")
            self._thread.join()
            self._stop.close()
        self._publisher.close()
        self._context.term()

    def __enter__(self) -> KvEventPublisher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<KvEventPublisher {self._endpoint}, shape {self._shape}, next_seq {self.next_seq}>"

    # What follows runs with the lock held, but for _serve_replays().

    def _open(self, kind: int) -> Any:
        socket = self._context.socket(kind)
        socket.linger = 0
        return socket

    @staticmethod
    def _bind(socket: Any) -> str:
        socket.bind("tcp://127.0.0.1:*")
        endpoint: str = socket.last_endpoint.decode()
        return endpoint

    def _hash(self, ids: list[int], parent: int | None) -> list[int]:
        if parent is None:
            digest = hashlib.sha256(pickle.dumps("vllm-none-hash", protocol=5)).digest()
        else:
            digest = self._digests.get(parent) or parent.to_bytes(32, "big", signed=parent < 0)
        hashes = []
        for begin in range(0, len(ids), self._block_size):
            block = (digest, tuple(ids[begin : begin + self._block_size]), None)
            digest = hashlib.sha256(pickle.dumps(block, protocol=5)).digest()
            hashes.append(int.from_bytes(digest[-8:], "big", signed=self._signed))
            self._digests[hashes[-1]] = digest
        return hashes

    def _add(self, event: dict[str, Any]) -> None:
        if self._together is not None:
            self._together.append(event)
        else:
            self._send(self._packed([event]))

    def _packed(self, events: list[dict[str, Any]]) -> bytes:
        now = time.time()
        batch: Any = [now, events, self._rank]
        if self._shape == "A":
            batch[1] = [list(event.values())[: self._array_length(event)] for event in events]
        elif self._shape == "C":
            batch = {"ts": now, "events": events, "data_parallel_rank": self._rank}
        packed: bytes = self._msgpack.packb(batch)
        return packed

    @staticmethod
    def _array_length(event: dict[str, Any]) -> int:
        """Without the defaults at its end."""
        if any(keys is not None for keys in event.get("extra_keys", ())):
            return 9
        if event.get("lora_name") is not None:
            return 8
        return 7 if event["type"] == "BlockStored" else 3

    def _send(self, payload: bytes) -> None:
        made = (self._next_seq.to_bytes(8, "big"), payload)
        self._next_seq += 1
        self._batches.append(made)
        if self._to_drop > 0:
            self._to_drop -= 1
        elif self._stalled:
            self._waiting.append(made)
        else:
            self._publish(made)

    def _publish(self, batch: tuple[bytes, bytes]) -> None:
        self._publisher.send_multipart([self._topic, *batch])

    def _serve_replays(self, router: Any) -> None:
        stop = self._open(self._zmq.PAIR)
        stop.connect("inproc://stop")
        poller = self._zmq.Poller()
        poller.register(router, self._zmq.POLLIN)
        poller.register(stop, self._zmq.POLLIN)
        while stop not in dict(poller.poll()):
            peer, *request = router.recv_multipart()
            if len(request) != 2 or len(request[1]) != 8:
                continue  # as engines do
            with self._changed:
                self._changed.wait_for(lambda: self._closed or not self._stalled)
                batches = [batch for batch in self._batches if batch[0] >= request[1]]
            for batch in batches:
                router.send_multipart([peer, b"", self._topic, *batch])
            router.send_multipart([peer, b"", b"", _END_OF_REPLAY, b""])
        router.close()
        stop.close()
