"""C++ core of vllm-router; use the names in `vllm_router` instead."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, ClassVar, Literal, SupportsIndex, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer, Self

from vllm_router._typing import HasArray
from vllm_router.blocks import BlockMatch
from vllm_router.discovery.source import WorkerSpec
from vllm_router.explanation import Explanation
from vllm_router.prefix_tree import PrefixMatch

__version__: str

_Text: TypeAlias = str | bytes
_Ints: TypeAlias = NDArray[Any] | Sequence[SupportsIndex] | Buffer | HasArray
_Headers: TypeAlias = Mapping[str, str] | Mapping[bytes, bytes] | Iterable[tuple[_Text, _Text]]
_End: TypeAlias = Literal["finished", "client_gone", "worker_failed", "not_sent"]
_Eviction: TypeAlias = Literal["lru", "lfu", "fifo", "mru", "filo", "priority"]
_Reason: TypeAlias = Literal[
    "random",
    "round_robin",
    "least_loaded",
    "power_of_two",
    "session_hash",
    "body_hash",
    "failover",
    "overflow",
    "prefix_hash",
    "prefix_hit",
    "prefix_miss",
    "prefix_spread",
    "load_balance",
    "lowest_cost",
    "sampled",
    "kv_aware",
    "sticky",
    "sticky_new",
    "fallback",
    "pinned",
    "holdout",
]

@overload
def hash_blocks(
    token_ids: _Ints | str | bytes,
    block_size: int = 16,
    *,
    scheme: Literal["chained", "positional"] = "chained",
    seed: int = 0,
    offsets: None = None,
    lora_name: _Text | None = None,
    cache_salt: _Text | None = None,
    extra: Mapping[int, _Text] | None = None,
) -> NDArray[np.uint64]:
    """Names for the complete blocks of a prompt: equal hashes mean equal prompts up to there.

    Block i of the prompt is `token_ids[i * block_size : (i + 1) * block_size]`; tokens behind the last
    complete block count for nothing. With L the hash of one block, H the hash of all blocks up to it, and all
    integers little-endian:

        L[i] = XXH3_64(token ids of block i as uint32, then extra[i]; seed)
        H[i] = XXH3_64(H[i - 1] as uint64, L[i] as uint64; seed), where 0 becomes 1

    H[-1] is `seed`, or, with an adapter or a salt, XXH3_64 of those present: `L` or `S`, the length as
    uint32, the bytes. The model is not hashed. `scheme="positional"` gives XXH3_64(i as uint64, token ids of
    block i): it forgets what came before, and serves to compare with other routers only.

    Args:
        token_ids: One prompt: uint32 array of shape (tokens,), contiguous, not copied; or a list or tuple of
            ints from 0 to 2^32 - 1; or a text (str as UTF-8), whose blocks are `4 * block_size` bytes long
            and never equal blocks of token ids. With `offsets`: the tokens of all prompts in a row.
        block_size: Tokens per block, 1 to 65536: the engine's.
        scheme: `chained` or `positional`.
        seed: 0 to 2^64 - 1. Hashes of different seeds have nothing in common.
        offsets: int64 array of shape (prompts + 1,): prompt i is `token_ids[offsets[i]:offsets[i + 1]]`.
        lora_name: The adapter's name; None or empty for none.
        cache_salt: What keeps tenants' caches apart; None or empty for none.
        extra: Bytes that belong to single blocks, by block: identifiers and offsets of images. Those of
            blocks that are not complete are ignored.

    Returns:
        uint64 array of shape (blocks,). With `offsets`: that of all prompts in a row, and an int64 array of
        shape (prompts + 1,) that says which are whose.

    Raises:
        TypeError: a wrong type or dtype.
        ValueError: a wrong shape, `block_size` out of range, offsets that fall or lead behind the end, an
            unknown scheme, or options that the scheme does not have.
    """

@overload
def hash_blocks(
    token_ids: NDArray[np.uint32],
    block_size: int = 16,
    *,
    scheme: Literal["chained", "positional"] = "chained",
    seed: int = 0,
    offsets: NDArray[np.int64],
    lora_name: _Text | None = None,
    cache_salt: _Text | None = None,
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]: ...

class BlockCacheTracker:
    """Which worker has how much of a prompt in its prefix cache, guessed from the requests sent to it.

    A worker that gets a prompt has its complete blocks then, and used them last. Beyond its capacity the
    blocks used longest ago go, the later block of a prompt before the earlier, as in vLLM. What is recorded
    is exact: a match never counts a block behind one that was evicted. A match refreshes nothing; recording
    does. Thread-safe.

    Prompts are what `hash_blocks` takes: a uint32 array of shape (tokens,), a list of ints, or a text.
    Batches take all prompts in one uint32 array `token_ids` and an int64 array `offsets` of shape
    (prompts + 1,): prompt i is `token_ids[offsets[i]:offsets[i + 1]]`; they run without the GIL.

    Args:
        block_size: Tokens per block, 1 to 65536: the engine's.
        max_blocks_per_worker: Blocks that a worker's cache holds. Zero records nothing.
        seed: Of the hashes, 0 to 2^64 - 1.
        max_blocks_per_backend: Another name of `max_blocks_per_worker`, which it takes the place of.

    Raises:
        TypeError: a wrong type.
        ValueError: a value out of its range.
    """

    def __init__(
        self,
        block_size: int = 16,
        max_blocks_per_worker: int = 100_000,
        *,
        seed: int = 0,
        max_blocks_per_backend: int | None = None,
    ) -> None: ...
    def record_request(self, token_ids: _Ints | _Text, worker: str) -> None:
        """The worker gets this prompt. One that is not known yet becomes so.

        Of a prompt with more blocks than the capacity only the first ones are kept.

        Raises:
            TypeError: a wrong type or dtype.
            ValueError: a wrong shape, or a token id out of range. Nothing is recorded.
            RouterError: there are 4,096 workers already.
        """

    def find_best_worker(
        self, token_ids: _Ints | _Text, *, workers: Iterable[str] | None = None
    ) -> BlockMatch | None:
        """The worker that holds most leading blocks; of equals the first in `workers`.

        That is the one known longest until a worker is removed: its place goes to the next new one.

        Args:
            token_ids: The prompt.
            workers: Only these may be returned; unknown ones are ignored. None: all.

        Returns:
            None if none of them holds the first block.
        """

    def find_best_backend(
        self, tokens: _Ints | _Text, *, backends: Iterable[str] | None = None
    ) -> BlockMatch | None:
        """Another name of `find_best_worker()`."""

    def evict_backend(self, backend: str, max_blocks: int) -> int:
        """Another name of `evict_worker()`."""

    def remove_backend(self, backend: str) -> None:
        """Another name of `remove_worker()`."""

    def match(self, token_ids: _Ints | _Text) -> dict[str, int]:
        """Leading blocks that each worker holds; those without any are left out."""

    def record_batch(
        self, token_ids: NDArray[np.uint32], offsets: NDArray[np.int64], workers: Sequence[str] | str
    ) -> None:
        """`record_request` for many prompts, in order; `workers` has a name per prompt, or is one for all."""

    def find_best_batch(
        self,
        token_ids: NDArray[np.uint32],
        offsets: NDArray[np.int64],
        *,
        workers: Iterable[str] | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
        """`find_best_worker` for many prompts.

        Returns:
            Three arrays of shape (prompts,): the worker as an index into `workers`, or -1; its leading
            blocks; the prompt's complete blocks.
        """

    def match_batch(self, token_ids: NDArray[np.uint32], offsets: NDArray[np.int64]) -> NDArray[np.int32]:
        """`match` for many prompts: shape (prompts, len(workers)), leading blocks of each worker."""

    def add_worker(self, worker: str) -> None:
        """Make a worker known that has no blocks yet; a known one stays as it is."""

    def evict_worker(self, worker: str, max_blocks: int) -> int:
        """Give up the worker's oldest blocks until it has at most `max_blocks`.

        Returns:
            How many blocks went.

        Raises:
            WorkerNotFoundError: the worker is not known.
        """

    def remove_worker(self, worker: str) -> None:
        """Forget the worker, at once; what it held is cleared up with later calls.

        Raises:
            WorkerNotFoundError: the worker is not known.
        """

    def block_count(self, worker: str) -> int:
        """Blocks that the worker holds.

        Raises:
            WorkerNotFoundError: the worker is not known.
        """

    def set_capacity(self, max_blocks_per_worker: int, worker: str | None = None) -> None:
        """Another capacity for all workers that have none of their own.

        A worker that has more blocks loses the oldest now.

        Args:
            max_blocks_per_worker: Blocks.
            worker: Only this one has it from now on, until it is removed.

        Raises:
            WorkerNotFoundError: the worker is not known.
        """

    def clear(self) -> None:
        """Forget every block of every worker; the workers stay known."""

    def sweep(self, runs: int = 1000) -> bool:
        """Clear up after removed workers, at most `runs` runs; True while there is more to do."""

    def save(self, path: str | bytes | PathLike[str] | PathLike[bytes]) -> None:
        """Write all of it to a file, which `load()` reads: blocks, order of use, capacities and counts.

        The bytes go to a temporary file beside it, which then takes its place, so that there is always a
        whole one. Its mode is 0600. Calls that change the tracker wait while its content is copied, not while
        it is written. docs/reference/index_file.md has the format.

        Args:
            path: The file; one that is there is replaced.

        Raises:
            OSError: the system reports an error; the file is as it was.
            ValueError: the file would be larger than 4 GiB.
        """

    @staticmethod
    def load(path: str | bytes | PathLike[str] | PathLike[bytes]) -> BlockCacheTracker:
        """The tracker that `save()` wrote: it matches and evicts as that one would.

        Everything in the file is checked. A checksum finds damage and not malice: a file from another source
        may hold any prompts, and costs memory and time in proportion to its size, no more.

        Args:
            path: The file.

        Raises:
            OSError: the file cannot be read.
            IndexFileError: it is no index, of another kind or version, cut, longer or changed; a ValueError.
        """

    @staticmethod
    def _from_image(image: bytes) -> BlockCacheTracker:
        """What a pickle holds."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Trackers can be pickled and copied; a pickle holds what a file does."""

    def stats(self) -> dict[str, float]:
        """Sizes and counts, by name.

        `workers`, `blocks` (distinct), `pairs` (of worker and block), `runs`, `segments`, `bytes`,
        `bytes_per_pair`, `backlog_bytes` (wait for readers to leave), and since the start
        `recorded_requests`, `recorded_blocks`, `evicted_blocks`.
        """

    @property
    def workers(self) -> list[str | None]:
        """Names by index; None where a worker was removed and no other has taken its place."""

    @property
    def block_size(self) -> int:
        """Tokens per block."""

    @property
    def max_blocks_per_worker(self) -> int:
        """The capacity."""

    @property
    def max_blocks_per_backend(self) -> int:
        """Another name of `max_blocks_per_worker`."""

class HashRing:
    """Which worker owns a key, such that a worker that comes or goes moves only its own keys.

    Every worker has points on a ring of 2^64 positions, the hashes of `<worker>:<i>`; a key belongs to the
    first point at or after its own hash. With `hash_function="furc"` and `virtual_nodes=160` the owners are
    those of `Router(policy="consistent_hash")` and of vllm-project/router. Thread-safe: a lookup sees the
    ring before a change or after it.

    Args:
        workers: Names of the first workers, or a dict of name to weight. A name is any text that is not
            empty; the names are what is hashed, so `http://w1:8000` and `http://w1:8000/` are two workers.
        virtual_nodes: Points per worker of weight 1, 1 to 65536. More make the shares more equal.
        hash_function: `furc` or `xxh3`, of points and keys alike.

    Raises:
        TypeError: a wrong type.
        ValueError: a value out of range, or more than 8,388,608 points.
        WorkerExistsError: a name appears twice.
    """

    def __init__(
        self,
        workers: Iterable[str] | Mapping[str, float] = (),
        *,
        virtual_nodes: int = 160,
        hash_function: Literal["furc", "xxh3"] = "furc",
    ) -> None: ...
    def add(self, worker: str, weight: float = 1.0) -> None:
        """Add a worker; it takes about its share of the keys from each of the others, and no other key moves.

        Args:
            worker: Its name.
            weight: Relative capacity, 0.01 to 100: points in proportion, at least one.

        Raises:
            ValueError: a weight out of range, an empty name, or too many points in all.
            WorkerExistsError: it is on the ring already.
        """

    def remove(self, worker: str) -> None:
        """Take a worker away; its keys go to those behind its points, and no other key moves.

        Raises:
            WorkerNotFoundError: it is not on the ring.
        """

    def lookup(self, key: _Text | int, *, exclude: Iterable[str] = ()) -> str:
        """The worker that owns a key.

        Args:
            key: A text (str as UTF-8), which is hashed; or an int from 0 to 2^64 - 1, a place on the ring.
            exclude: Workers to pass over: the first other one clockwise is returned. Unknown names are
                ignored.

        Raises:
            NoWorkersError: the ring is empty, or all are excluded.
        """

    def lookup_n(self, key: _Text | int, n: SupportsIndex, *, exclude: Iterable[str] = ()) -> list[str]:
        """The first `n` workers clockwise, each once: the owner, its successor, and so on.

        Args:
            key: As in `lookup()`.
            n: How many; fewer are returned where the ring has fewer.
            exclude: As in `lookup()`.

        Raises:
            TypeError: a wrong type.
            ValueError: `n` is negative.
        """

    def lookup_batch(self, keys: Sequence[_Text] | NDArray[np.uint64]) -> NDArray[np.int32]:
        """The owners of many keys, with the GIL released.

        Args:
            keys: n texts; or places on the ring, an array of shape (n,), uint64, contiguous, not copied.

        Returns:
            Shape (n,), int32: indices into `workers`.

        Raises:
            NoWorkersError: the ring is empty.
            TypeError: a wrong type or dtype.
            ValueError: an array of the wrong shape.
        """

    def lookup_bounded(
        self,
        key: _Text | int,
        loads: Mapping[str, int] | Sequence[int] | NDArray[np.int64],
        epsilon: float = 0.25,
        *,
        exclude: Iterable[str] = (),
    ) -> str:
        """The first worker clockwise that may take one more: consistent hashing with bounded loads.

        Of the workers that are not excluded, w may take one more while its load is below

            cap(w) = ceil((1 + epsilon) * (sum of loads + 1) * weight of w / sum of weights)

        The caps add up to more than the loads, so some worker is always below its cap. Mirrokni, Thorup,
        Zadimoghaddam: "Consistent Hashing with Bounded Loads" (SODA 2018).

        Args:
            key: As in `lookup()`.
            loads: Open requests by worker: a dict, in which a worker that is missing has 0; or one int for
                each, in the order of `workers`. Together at most 10,000,000,000.
            epsilon: How far above the average a load may be, 0 to 10, in steps of 0.001.
            exclude: As in `lookup()`; the loads of those excluded do not count.

        Raises:
            NoWorkersError: the ring is empty, or all are excluded.
            TypeError: a wrong type.
            ValueError: `epsilon` or a load out of range, a load of a worker that is not on the ring, or the
                wrong number of loads.
        """

    @property
    def workers(self) -> list[str]:
        """The workers in the order in which they came."""

    @property
    def weights(self) -> dict[str, float]:
        """Their weights, in that order."""

    @property
    def points(self) -> int:
        """Points on the ring: those of all workers, less the few that share a place with another."""

    @property
    def virtual_nodes(self) -> int:
        """Points per worker of weight 1."""

    @property
    def hash_function(self) -> Literal["furc", "xxh3"]:
        """The hash of points and keys."""

    def __len__(self) -> int: ...
    def __contains__(self, worker: object) -> bool: ...
    def __iter__(self) -> Iterator[str]:
        """The workers in the order in which they came."""

    def __eq__(self, value: object) -> bool:
        """Whether both have the same workers, in this order, with the same weights, and hash alike."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Rings can be pickled and copied."""

class StringTree:
    """Which workers have seen how much of a text: a radix tree whose nodes know all their owners.

    Lengths and sizes are bytes of UTF-8; a match never ends within a character. What is inserted is matched
    exactly until it is given up, a prompt from its end. Thread-safe.

    Args:
        max_tree_size: Bytes of distinct text that the tree keeps, of all workers together. Never exceeded.
        eviction: What goes first when it is full: `lru` used longest ago, `lfu` passed by the fewest inserts,
            `fifo` came first, `mru` used last, `filo` came last, `priority` passed only by low priorities.
        max_memory: Bytes of memory that it may take; None: no limit but `max_tree_size`.

    Raises:
        TypeError: a wrong type.
        ValueError: a value out of its range.
    """

    def __init__(
        self, *, max_tree_size: int = 67_108_864, eviction: _Eviction = "lru", max_memory: int | None = None
    ) -> None: ...
    def insert(self, prefix: _Text, worker: str, *, priority: int = 0) -> None:
        """The worker gets this prompt and owns all of it from now on. One that is not known yet becomes so.

        A prompt larger than `max_tree_size` is not added.

        Args:
            prefix: The prompt.
            worker: Its name, such as its URL.
            priority: With `eviction="priority"`: prompts of lower ones are given up first.

        Raises:
            TypeError: a wrong type.
            RouterError: there are 4,096 workers already.
        """

    def match(self, prefix: _Text) -> PrefixMatch:
        """How much of this prompt each worker has. Refreshes nothing; a later insert does."""

    def match_batch(
        self, prefixes: Sequence[_Text] | Buffer, offsets: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
        """`match` for many prompts, without the GIL.

        Args:
            prefixes: A sequence of prompts; or, with `offsets`, all of them one after the other in bytes or a
                buffer of bytes.
            offsets: Shape (prompts + 1,): prompt i is `prefixes[offsets[i]:offsets[i + 1]]`.

        Returns:
            Three arrays of shape (prompts,): a worker with the longest match as an index into `workers`,
            or -1; that match; the prompt's length.
        """

    def insert_batch(
        self,
        prefixes: Sequence[_Text] | Buffer,
        workers: Sequence[str] | str,
        offsets: NDArray[np.int64] | None = None,
        *,
        priority: int = 0,
    ) -> None:
        """`insert` for many prompts, in order; `workers` has a name per prompt, or is one for all."""

    def add_worker(self, worker: str) -> None:
        """Make a worker known that owns nothing yet; a known one stays as it is."""

    def evict_worker(self, worker: str, max_size: int = 0) -> int:
        """Give up the worker's prompts, from their ends and in order, until it owns at most `max_size` bytes.

        Returns:
            How many bytes those were.

        Raises:
            WorkerNotFoundError: the worker is not known.
        """

    def remove_worker(self, worker: str) -> None:
        """Forget the worker, at once; what it owned is cleared up with later calls.

        Raises:
            WorkerNotFoundError: the worker is not known.
        """

    def size(self, worker: str | None = None) -> int:
        """Bytes of text that the worker owns; without a worker, of distinct text.

        Raises:
            WorkerNotFoundError: the worker is not known.
        """

    def trim(self, pairs: int = 256, max_size: int | None = None) -> bool:
        """Work for the background: clear up after removed workers, then give up leaves down to `max_size`.

        Args:
            pairs: At most so many pairs of worker and node, for which other threads wait.
            max_size: Bytes of distinct text; None: the limit, which every insert keeps anyway.

        Returns:
            True while there is more to do.
        """

    def save(self, path: str | bytes | PathLike[str] | PathLike[bytes]) -> None:
        """Write all of it to a file, which `load()` reads: prompts in clear text, workers, order of eviction.

        The bytes go to a temporary file beside it, which then takes its place, so that there is always a
        whole one. Its mode is 0600. Calls that change the tree wait while its content is copied, not while
        it is written. docs/reference/index_file.md has the format.

        Args:
            path: The file; one that is there is replaced.

        Raises:
            OSError: the system reports an error; the file is as it was.
            ValueError: the file would be larger than 4 GiB.
        """

    @staticmethod
    def load(path: str | bytes | PathLike[str] | PathLike[bytes]) -> StringTree:
        """The tree that `save()` wrote: it matches and evicts as that one would.

        Everything in the file is checked. A checksum finds damage and not malice: a file from another source
        may hold any prompts, and costs memory and time in proportion to its size, no more.

        Args:
            path: The file.

        Raises:
            OSError: the file cannot be read.
            IndexFileError: it is no index, of another kind or version, cut, longer or changed; a ValueError.
        """

    @staticmethod
    def _from_image(image: bytes) -> StringTree:
        """What a pickle holds."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Trees can be pickled and copied; a pickle holds what a file does."""

    def stats(self) -> dict[str, int]:
        """Sizes and counts, by name.

        `workers`, `nodes`, `pairs` (of worker and node), `size` (bytes of distinct text), `bytes` (of
        memory), `removing_workers` (not yet cleared up), and since the start `inserts`,
        `evicted_pairs`, `evicted_size`.
        """

    @property
    def workers(self) -> list[str | None]:
        """Names by index; None where a worker was removed and no other has taken its place."""

    @property
    def max_tree_size(self) -> int:
        """The limit, in bytes of distinct text."""

    @property
    def eviction(self) -> str:
        """The order in which prompts are given up."""

class TokenTree:
    """Which workers have seen how many of a prompt's token ids, in whole pages: StringTree over ids.

    Matches are in tokens, sizes in bytes, four per token. A prompt is a uint32 array, a list or a tuple of
    ints; what lies behind its last whole page is not remembered. Thread-safe.

    Args:
        page_size: Tokens that the engine caches at once, 1 to 65536.
        max_tree_size: Bytes of distinct text, four per token, that the tree keeps, of all workers together.
            Never exceeded.
        eviction: What goes first when it is full: `lru` used longest ago, `lfu` passed by the fewest inserts,
            `fifo` came first, `mru` used last, `filo` came last, `priority` passed only by low priorities.
        max_memory: Bytes of memory that it may take; None: no limit but `max_tree_size`.

    Raises:
        TypeError: a wrong type.
        ValueError: a value out of its range.
    """

    def __init__(
        self,
        page_size: int = 16,
        *,
        max_tree_size: int = 67_108_864,
        eviction: _Eviction = "lru",
        max_memory: int | None = None,
    ) -> None: ...
    def insert(self, prefix: NDArray[np.uint32] | Sequence[int], worker: str, *, priority: int = 0) -> None:
        """The worker gets this prompt and owns all of it from now on. One that is not known yet becomes so.

        A prompt larger than `max_tree_size` is not added.

        Args:
            prefix: The prompt.
            worker: Its name, such as its URL.
            priority: With `eviction="priority"`: prompts of lower ones are given up first.

        Raises:
            TypeError: a wrong type.
            RouterError: there are 4,096 workers already.
        """

    def match(self, prefix: NDArray[np.uint32] | Sequence[int]) -> PrefixMatch:
        """How much of this prompt each worker has. Refreshes nothing; a later insert does."""

    def match_batch(
        self,
        prefixes: Sequence[NDArray[np.uint32] | Sequence[int]] | NDArray[np.uint32],
        offsets: NDArray[np.int64] | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
        """`match` for many prompts, without the GIL.

        Args:
            prefixes: A sequence of prompts; or, with `offsets`, all of them one after the other in a uint32
                array.
            offsets: Shape (prompts + 1,): prompt i is `prefixes[offsets[i]:offsets[i + 1]]`.

        Returns:
            Three arrays of shape (prompts,): a worker with the longest match as an index into `workers`,
            or -1; that match; the prompt's length.
        """

    def insert_batch(
        self,
        prefixes: Sequence[NDArray[np.uint32] | Sequence[int]] | NDArray[np.uint32],
        workers: Sequence[str] | str,
        offsets: NDArray[np.int64] | None = None,
        *,
        priority: int = 0,
    ) -> None:
        """`insert` for many prompts, in order; `workers` has a name per prompt, or is one for all."""

    def add_worker(self, worker: str) -> None:
        """Make a worker known that owns nothing yet; a known one stays as it is."""

    def evict_worker(self, worker: str, max_size: int = 0) -> int:
        """Give up the worker's prompts, from their ends and in order, until it owns at most `max_size` bytes.

        Returns:
            How many bytes those were.

        Raises:
            WorkerNotFoundError: the worker is not known.
        """

    def remove_worker(self, worker: str) -> None:
        """Forget the worker, at once; what it owned is cleared up with later calls.

        Raises:
            WorkerNotFoundError: the worker is not known.
        """

    def size(self, worker: str | None = None) -> int:
        """Bytes of text that the worker owns, four per token; without a worker, of distinct text.

        Raises:
            WorkerNotFoundError: the worker is not known.
        """

    def trim(self, pairs: int = 256, max_size: int | None = None) -> bool:
        """Work for the background: clear up after removed workers, then give up leaves down to `max_size`.

        Args:
            pairs: At most so many pairs of worker and node, for which other threads wait.
            max_size: Bytes of distinct text; None: the limit, which every insert keeps anyway.

        Returns:
            True while there is more to do.
        """

    def save(self, path: str | bytes | PathLike[str] | PathLike[bytes]) -> None:
        """Write all of it to a file, which `load()` reads: prompts, workers, order of eviction, counts.

        The bytes go to a temporary file beside it, which then takes its place, so that there is always a
        whole one. Its mode is 0600. Calls that change the tree wait while its content is copied, not while
        it is written. docs/reference/index_file.md has the format.

        Args:
            path: The file; one that is there is replaced.

        Raises:
            OSError: the system reports an error; the file is as it was.
            ValueError: the file would be larger than 4 GiB.
        """

    @staticmethod
    def load(path: str | bytes | PathLike[str] | PathLike[bytes]) -> TokenTree:
        """The tree that `save()` wrote: it matches and evicts as that one would.

        Everything in the file is checked. A checksum finds damage and not malice: a file from another source
        may hold any prompts, and costs memory and time in proportion to its size, no more.

        Args:
            path: The file.

        Raises:
            OSError: the file cannot be read.
            IndexFileError: it is no index, of another kind or version, cut, longer or changed; a ValueError.
        """

    @staticmethod
    def _from_image(image: bytes) -> TokenTree:
        """What a pickle holds."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Trees can be pickled and copied; a pickle holds what a file does."""

    def stats(self) -> dict[str, int]:
        """Sizes and counts, by name.

        `workers`, `nodes`, `pairs` (of worker and node), `size` (bytes of distinct text), `bytes` (of
        memory), `removing_workers` (not yet cleared up), and since the start `inserts`,
        `evicted_pairs`, `evicted_size`.
        """

    @property
    def workers(self) -> list[str | None]:
        """Names by index; None where a worker was removed and no other has taken its place."""

    @property
    def max_tree_size(self) -> int:
        """The limit, in bytes of distinct text."""

    @property
    def eviction(self) -> str:
        """The order in which prompts are given up."""

    @property
    def page_size(self) -> int:
        """Tokens per page."""

class Ticket:
    """One decision, and the promise that the load it reserved returns.

    It returns by `finish()`, by leaving a `with` block, or when the ticket is dropped, exactly once. Until
    then a ticket keeps what its policy read of the request, for `moved()`, and shows none of it. It refers to
    no Python object but a `prompt`, so no reference cycle of its own can keep it alive; one that sits in
    another object's cycle ends when the garbage collector finds that. Thread-safe. Made by `Router.select()`
    only.
    """

    @property
    def worker_url(self) -> str:
        """The chosen worker as registered, with `@rank`; what `exclude` takes."""

    @property
    def base_url(self) -> str:
        """Where to send the request: `worker_url` without `@rank`."""

    @property
    def rank(self) -> int | None:
        """Data-parallel rank, to be sent as the header `X-data-parallel-rank`; None for a worker without."""

    @property
    def reason(self) -> _Reason:
        """Why this worker; stable names."""

    @property
    def unit(self) -> Literal["none", "bytes", "tokens", "blocks"]:
        """What `matched` and `total` count; `none` for policies that match nothing."""

    @property
    def matched(self) -> int:
        """How much of the prompt the worker is thought to hold, in `unit`s; 0 <= matched <= total."""

    @property
    def total(self) -> int:
        """Length of the prompt in `unit`s."""

    @property
    def finished(self) -> bool:
        """Whether the load has been returned."""

    def explain(self) -> str:
        """Why this worker was chosen; with `select(explain=True)` all candidates, too."""

    def alternatives(self, n: int = 2) -> list[str]:
        """The workers that come next, best first: at most `n`, and no more than `alternatives` of `select()`.

        The order is that of the same policy with the chosen worker excluded, then with the next one,
        too.

        Raises:
            ValueError: the ticket was made without `select(..., alternatives=...)`, or `n` is negative.
        """

    def moved(self, url: str) -> None:
        """The request went to another worker than the chosen one: its queue was full, say.

        The load moves there in one step, whatever limit that worker has. The policy takes the prompt back
        from the first worker, as `finish(end="not_sent")` does, and learns it of this one; a session follows.
        From then on the ticket is one for this worker, with the reason `pinned`, its match, and no first
        token yet. A ticket may move several times; to the worker that it is for, it changes nothing.

        Args:
            url: The worker, as in the fleet; healthy or not, draining or not.

        Raises:
            TicketFinishedError: the ticket is finished (a ValueError).
            WorkerNotFoundError: the URL is not in the fleet; the message names the nearest one that is.
            ValueError: the URL means several ranks, or the ticket is a row of a batch, which keeps no
                prompts. In all of these cases nothing has changed.
        """

    def renew(self, seconds: float | None = None) -> None:
        """The request is still under way: the ticket's lease begins anew.

        A ticket with a lease that has run out ends as by `finish(end="client_gone")`, so that the load
        returns although a program keeps the ticket for ever. The router checks leases with each
        decision, and when its workers or its counts are read; `Router.stats()["tickets_expired"]` counts such
        tickets. All tickets of `select()` have a lease where the router has `ticket_lease_secs`.

        Args:
            seconds: From now on, above 0, at most 31,536,000. None: `ticket_lease_secs`.

        Raises:
            TicketFinishedError: the ticket is finished, or its lease ran out (a ValueError).
            ValueError: `seconds` out of range; none are given and the router has no `ticket_lease_secs`; or
                the ticket is a row of a batch, which has no lease.
        """

    def first_token(self) -> None:
        """The first output token has come: the share of load that stands for prefill returns now, once."""

    def finish(
        self,
        *,
        status: int | None = None,
        end: _End | None = None,
        first_token_ms: float | None = None,
        prompt_tokens: int | None = None,
        cached_tokens: int | None = None,
        output_tokens: int | None = None,
    ) -> bool:
        """Return the load and tell the policy how the request went.

        Args:
            status: HTTP status of the worker's response, 100 to 599, or 0 for none. Default: 200 when `end`
                is `finished`, else 0.
            end: `finished` (default), `client_gone`, `worker_failed` or `not_sent`. After the last two the
                worker is not believed to hold the prompt, unless another request put it there; nor with a
                status of 400 or more.
            first_token_ms: Time to the first token, in milliseconds.
            prompt_tokens: Tokens of the prompt, as the worker counted them.
            cached_tokens: Those of them that the worker had in its cache.
            output_tokens: Tokens of the response.

        Returns:
            True for the call that returned the load, False when it had been returned before.

        Raises:
            ValueError: `status` out of range or `end` unknown. The load is still reserved then.
        """

    def __copy__(self) -> Self:
        """The ticket itself: a load is reserved once, also when an object that holds the ticket is copied."""

    def __deepcopy__(self, memo: Any) -> Self:
        """The ticket itself."""

    def __reduce__(self) -> Any:
        """Raises TypeError: a ticket belongs to one process."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Finish, unless that has been done.

        Without an exception as `finished` (status 200); with an `Exception` as `worker_failed`; with any
        other `BaseException` (`asyncio.CancelledError`, `GeneratorExit`, `KeyboardInterrupt`) as
        `client_gone`.
        """

class Batch:
    """The decisions of one `select_batch()`, and the load that they reserved; ends like a `Ticket`.

    It can be finished in parts, by `finish(rows=...)`. `batch[i]` is the ticket of row i, and iterating over
    a batch gives all of them. A ticket that was taken out lives on its own: when the batch is dropped, the
    load of all other rows returns, and that of the ticket when it is finished or dropped. Thread-safe.
    """

    @property
    def workers(self) -> NDArray[np.int32]:
        """Shape (n,): the chosen workers, as indices into `worker_urls`."""

    @property
    def matched(self) -> NDArray[np.int64]:
        """Shape (n,): as `Ticket.matched`."""

    @property
    def total(self) -> NDArray[np.int64]:
        """Shape (n,): as `Ticket.total`."""

    @property
    def worker_urls(self) -> list[str]:
        """`Router.worker_urls` when the batch was decided; stays right when the fleet changes afterwards."""

    @property
    def reason(self) -> list[_Reason]:
        """As `Ticket.reason`, one per row."""

    @property
    def unit(self) -> list[Literal["none", "bytes", "tokens", "blocks"]]:
        """As `Ticket.unit`, one per row."""

    def finish(
        self,
        *,
        rows: SupportsIndex | slice | _Ints | None = None,
        status: SupportsIndex | _Ints | None = None,
        end: _End = "finished",
        tokens: SupportsIndex | _Ints | None = None,
        prompt_tokens: SupportsIndex | _Ints | None = None,
        cached_tokens: SupportsIndex | _Ints | None = None,
    ) -> int:
        """Return the loads of some rows, or of all that are still reserved.

        Args:
            rows: An index, a slice, integers (a list, a range, an array), or a mask: an array of bool with an
                entry per row. Negative ones count from the end. None: all.
            status: As in `Ticket.finish()`: one for all these rows, or one for each of them.
            end: As in `Ticket.finish()`, for all these rows.
            tokens: Tokens of the responses, `output_tokens` of `Ticket.finish()`: one number, or one per row.
            prompt_tokens: As in `Ticket.finish()`: one number, or one per row.
            cached_tokens: As in `Ticket.finish()`: one number, or one per row.

        Returns:
            How many loads this call returned; rows that had been finished before do not count.

        Raises:
            IndexError: a row that is not in the batch, or a mask of the wrong length.
            TypeError: an argument of the wrong type.
            ValueError: a value out of range, or not one per row. In all three cases nothing is finished.
        """

    def _repr_html_(self) -> str:
        """The first rows as a table, for notebooks."""

    def __copy__(self) -> Self:
        """The batch itself, as of a `Ticket`."""

    def __deepcopy__(self, memo: Any) -> Self:
        """The batch itself."""

    def __reduce__(self) -> Any:
        """Raises TypeError: a batch belongs to one process."""

    def __getitem__(self, row: SupportsIndex) -> Ticket: ...
    def __iter__(self) -> Iterator[Ticket]: ...
    def __len__(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Finish, as `Ticket.__exit__()` does."""

class Router:
    """The C++ part of `vllm_router.Router`."""

    def __init__(
        self,
        worker_urls: list[str],
        options: dict[str, Any],
        stages: tuple[list[tuple[str, int | None]], list[str], dict[str, Any], bool] | None = None,
    ) -> None:
        """`options`: what `router_args.check_policy_options()` returns.

        `stages`, of a fleet of prefill and decode workers: their URLs, the options of the decode policy, and
        whether that one was not named.
        """

    def select(
        self,
        body: _Text | Buffer | dict[str, Any] | None = None,
        *,
        prompt: _Text | Buffer | None = None,
        messages: Sequence[Any] | None = None,
        token_ids: _Ints | None = None,
        headers: _Headers | None = None,
        model: str | None = None,
        path: str | None = None,
        exclude: Iterable[str] = (),
        among: Iterable[str] | None = None,
        alternatives: int = 0,
        explain: bool = False,
        shared_ranges: Iterable[tuple[int, int]] | None = None,
        override: dict[str, float] | None = None,
    ) -> Ticket:
        """Choose a worker for one request and reserve the load there.

        Say what you have of the request; only what the policy needs is read. One of `body`, `prompt` and
        `messages` at most, since they exclude each other. Nothing is sent over the network: with
        `tokenize="worker"` too, text is matched by its bytes here, and by token ids in the server only.

        Args:
            body: The JSON body as it will be sent: bytes, str, or a dict, which is read as the text
                `json.dumps(body, separators=(",", ":"), ensure_ascii=False)`, the openai client's spelling,
                so that a dict and the bytes it is sent as are one request. Bytes you have already are
                cheaper than a dict.
            prompt: Plain text of a completion.
            messages: Messages of a chat; with `model`, the same request as the body
                `{"model": model, "messages": messages}`. Each is a dict, or an object with `model_dump()` (a
                pydantic model) or else a `__dict__`, which are read without members that are None and without
                names that begin with `_`.
            token_ids: The prompt as token ids: a contiguous uint32 array, not copied; or a list, a range or
                another sequence of integers, numpy's too; an `array("I")` or memoryview of uint32; a pandas
                Series of uint32. They make the estimated size of the prompt exact and may come beside one of
                the others.
            headers: Request headers, a mapping or pairs; names in any case, the first of equal names counts.
            model: Name of the model, where no `body` says it: with `messages`, `prompt` or `token_ids`. Where
                workers serve different models (`WorkerSpec.models`, or what they list to a server), only
                those that serve it are chosen; without a name, those of the only base model, or any.
            path: The path that the request goes to, such as `/v1/responses`: it tells what `input` means.
                Without it a body with `instructions` and `input` is a Responses request.
            exclude: URLs of workers that must not be chosen, such as those that have failed already. A URL
                without `@rank` means all its ranks; URLs that are not in the fleet are ignored.
            among: Only these workers may be chosen, in the same form; None: all. `exclude` counts besides.
            alternatives: How many more workers to rank, for `Ticket.alternatives()`; each costs one more look
                at the fleet, which reserves and records nothing.
            explain: Keep what the workers were compared by, for `Ticket.explain()`; costs a few microseconds.
            shared_ranges: For kv_logit: the blocks of the prompt that every worker can load from a shared
                pool, as pairs (begin, end) of block numbers, each without its end, in any order.
            override: For kv_logit and kv_aware: `overlap_weight`, `router_temperature` and
                `shared_cache_multiplier` for this request alone, with the ranges of the router's options.

        Raises:
            NoWorkersError: no worker may be chosen; the message counts workers by the reason.
            ModelNotFoundError: workers serve different models, and none of them this one.
            TypeError: an argument of the wrong type, or two that exclude each other.
            ValueError: token ids out of range, an array of the wrong shape, a number that JSON does not have;
                `shared_ranges` or `override` for a policy that does not read them, or out of range.
        """

    def select_bypass(
        self,
        body: _Text | Buffer | dict[str, Any] | None = None,
        *,
        prompt: _Text | Buffer | None = None,
        messages: Sequence[Any] | None = None,
        token_ids: _Ints | None = None,
        headers: _Headers | None = None,
        model: str | None = None,
        path: str | None = None,
    ) -> Ticket | None:
        """Of a fleet of prefill and decode workers: a decode worker that serves the request alone, or None.

        With `pd_bypass_uncached_tokens`, a request bypasses prefill if a decode worker has most of its prompt
        in its cache, or if the prompt is short. Its load is reserved there as by `select()`, and what the
        worker holds is learned from these tickets. None: the request needs a prefill worker, which
        `select()` chooses; always where nothing bypasses prefill. The arguments and errors are those of
        `select()`.
        """

    def explain(
        self,
        body: _Text | Buffer | dict[str, Any] | None = None,
        *,
        prompt: _Text | Buffer | None = None,
        messages: Sequence[Any] | None = None,
        token_ids: _Ints | None = None,
        headers: _Headers | None = None,
        model: str | None = None,
        path: str | None = None,
        exclude: Iterable[str] = (),
        among: Iterable[str] | None = None,
        shared_ranges: Iterable[tuple[int, int]] | None = None,
        override: dict[str, float] | None = None,
    ) -> Explanation:
        """What `select()` would decide on this request, and why: a dry run.

        It ranks all workers, with what the policy compares, and shows what was read of the request. No load
        is reserved, nothing is learned or counted, and the next `select()` gives what it would have given
        without this. A policy that draws at random shows what it would draw next.

        Args: as those of `select()`.

        Returns:
            The ranking; `print()` shows a table, a notebook an HTML table. Nothing of the prompt is in it.
            Where no worker can take the request, its `worker_url` is None.

        Raises:
            TypeError: an argument of the wrong type, or two that exclude each other.
            ValueError: token ids out of range, an array of the wrong shape, a number that JSON does not have.
        """

    def select_batch(
        self,
        prompts: Sequence[_Text] | None = None,
        *,
        token_ids: _Ints | None = None,
        offsets: _Ints | None = None,
        session_ids: Iterable[_Text | float | None] | None = None,
        model: str | None = None,
    ) -> Batch:
        """Choose workers for many requests, in order, each seeing the load of those before it.

        All are decided on the fleet as it is at the start. The GIL is released, and Ctrl-C is heard: no load
        stays reserved then.

        Args:
            prompts: n texts.
            token_ids: The ids of all rows, one row after the other; shape (m,), uint32, contiguous, not
                copied; or what `select()` takes besides.
            offsets: Row i is `token_ids[offsets[i]:offsets[i + 1]]`; shape (n + 1,), int64, never falling,
                within 0 to m; or other integers as in `token_ids`.
            session_ids: n values of `X-Session-ID`; None, NaN or blank for a request without one.
            model: Name of the model of all of them, as in `select()`: prompts of different models do not
                match.

        Raises:
            NoWorkersError: no worker may be chosen; no load stays reserved.
            ModelNotFoundError: as in `select()`.
            TypeError: no rows at all, `token_ids` without `offsets`, or the wrong type or dtype.
            ValueError: different numbers of rows, wrong shape, offsets out of order or out of range.
        """

    def stats(self) -> dict[str, Any]:
        """Counts: `policy`, its name, what it keeps, and `tickets_expired`: see `Ticket.renew()`.

        prefix_aware: `prefix_routing`, a dict of its decisions (`prefix_hash`, `overflow`, `fallback`) and
        `unique_prefixes`, about how many different prefixes it has seen (within 1 %).
        cache_aware: `cache_routing`, a dict of its decisions (`hits`, `misses`, `load_balancing`) and of what
        it remembers: `bytes` of different prompts, its limit `max_bytes`, `memory_bytes`, `nodes`,
        `evicted_bytes`, `workers`, the bytes that each was sent; and where responses report them,
        `predicted_tokens` and `reported_tokens` of caches, and `inferred_restarts`.
        Every policy that matches prompts: `cache_prediction`, a dict of sums: `predicted_tokens`,
        `reported_tokens`, `miss_tokens`, `overpredicted_requests` and `foregone_tokens`
        (docs/reference/metrics.md).

        auto and vllm_cache_aware: `block_index`, a dict of what they believe the workers' caches to hold:
        `blocks` (distinct), `worker_blocks`, `bytes`, `recorded_requests`, `evicted_blocks`,
        `prompt_blocks` and of them `matched_blocks`, `workers` (blocks by URL), `max_blocks` (their maximum
        by URL), `block_sizes` (tokens of a block of the worker's cache by URL, see `set_cache`),
        `match_times` (pairs of an upper bound in seconds and how many matches took up to that and longer
        than the bound before; one match in 16 is timed) and `match_seconds`, their sum.
        """

    def add_worker(
        self,
        url: str,
        weight: float = 1.0,
        *,
        worker_type: str = "regular",
        bootstrap_port: int | None = None,
        kv_group: str = "",
    ) -> None:
        """Add a worker at the end of the fleet: `http://host:port[/prefix][@rank]`.

        A router that is not served also takes names, `ray://<id>` and `name://<id>`, of workers to which the
        program connects itself. With `intra_node_data_parallel_size` above 1 a URL without `@rank` adds all
        its ranks, or none.

        Args:
            url: Its name in every later call, without a trailing slash.
            weight: Relative capacity, 0.01 to 100; loads are compared as load / weight.
            worker_type: `prefill` or `decode` in a fleet that has these two stages, else `regular`.
            bootstrap_port: Where decode workers learn of a prefill worker's engine, 1 to 65535.
            kv_group: Of a worker of a stage: its KV blocks fit those of the same group or without one.

        Raises:
            ValueError: a bad URL, weight or group, or a type that the fleet does not have.
            WorkerExistsError: it is in the fleet already.
            RouterError: the fleet is full.
        """

    def receipts(self, last: int = 100) -> list[dict[str, Any]]:
        """The receipts of the last tickets that were finished, newest first: one per decision.

        Each has the members of `GET /admin/receipts` (docs/reference/http_api.md): what the policy expected
        of the worker's cache, and what `Ticket.finish(prompt_tokens=, cached_tokens=)` was told. There is
        none of what was not sent, of rows of a batch, and of requests to a server. `Router(receipts=0)`
        keeps none.

        Args:
            last: 1 to 1000.

        Raises:
            ValueError: `last` is out of range.
        """

    def finish_session(self, session_id: str) -> bool:
        """A session is over: `sticky_least_loaded` gives its next request to the worker with the fewest.

        Other policies remember no sessions. `session_id` is what requests say in the header or in the member
        of the body that names their session. True if it was known.
        """

    def remove_worker(self, url: str) -> None:
        """Take a worker out of the fleet; a URL without `@rank` means all its ranks.

        Open tickets end as usual.

        Raises:
            WorkerNotFoundError: it is not in the fleet.
        """

    def drain_worker(self, url: str) -> None:
        """Choose a worker no more, and let it finish what it has; `remove_worker()` when its load is 0.

        Raises:
            WorkerNotFoundError: it is not in the fleet.
        """

    def set_healthy(self, url: str, healthy: bool) -> None:
        """Whether a worker may be chosen; ranks of one host share their health. Hash policies keep its place.

        Raises:
            WorkerNotFoundError: it is not in the fleet.
        """

    def set_cache(self, url: str, *, block_size: int, blocks: int | None = None) -> None:
        """What a worker's KV cache holds, or that of each of its ranks. A server reads it from its workers.

        With `block_size="auto"`, what the worker holds of a prompt counts in complete blocks of its own size;
        another size than before means another engine, whose cache is empty.

        Args:
            url: A worker of the fleet; without `@rank` all its ranks.
            block_size: Tokens of a block, 1 to 65536: the engine's.
            blocks: How many it holds, at least 1; beyond that the least recently used are forgotten. None
                leaves what was known, at first `max_blocks_per_worker` blocks of the index.

        Raises:
            ValueError: a value out of range.
            WorkerNotFoundError: it is not in the fleet.
        """

    def forget(self, url: str | None = None) -> None:
        """A worker's cache is empty, as after a restart of its engine or a change of the model's weights.

        No prompt sent before is believed to be there any more. Loads and sessions stay, and so do counts. A
        server forgets by itself: after `POST /flush_cache`, and when it sees that an engine has restarted.

        Args:
            url: A worker of the fleet; without `@rank` all its ranks. None: every worker.

        Raises:
            WorkerNotFoundError: it is not in the fleet.
        """

    def push_kv_events(
        self,
        worker: str,
        events: bytes | Sequence[Mapping[str, Any]],
        *,
        seq: int | None = None,
        rank: int = 0,
        reset: bool = False,
        model: str = "",
    ) -> int:
        """Tell what a worker's cache stored and removed, without a socket: for tests and converters.

        Events are applied in order; prompts of token ids are matched with them from then on. The worker is
        believed to hold exactly what its events say, if the first call had `seq` 0 or none, or `reset`.

        Args:
            worker: A worker of the fleet, with `@rank` if it has one.
            events: Such as `[{"type": "BlockStored", "block_hashes": [7], "parent_block_hash": None,
                "token_ids": [*range(16)], "block_size": 16}]`, with `medium` `"GPU"` (or none) or `"CPU"`;
                `BlockRemoved` has `block_hashes` and `medium`, `AllBlocksCleared` nothing. Or bytes in
                msgpack, as an engine publishes them.
            seq: The number of the batch, from 0. None takes the next.
            rank: The data-parallel rank whose cache it is, where ranks share one URL.
            reset: Forget what was known of that cache before.
            model: The base model's name as prompts have it; their blocks do not match without it.

        Returns:
            The number that comes next.

        Raises:
            TypeError: `events` are of another type.
            ValueError: the policy matches no blocks; `seq` is not the next number; or the bytes are no batch.
                Nothing was applied.
            WorkerNotFoundError: it is not in the fleet.

        Warns:
            UserWarning: some of the events cannot be used, and why: `block_size`, for instance, is a size
                that the router's `block_size` does not divide.
        """

    def save_index(self, path: str | bytes | PathLike[str] | PathLike[bytes]) -> None:
        """Write what `auto` or `vllm_cache_aware` knows of the workers' caches to a file.

        The file holds hashes of blocks, workers by URL, and the order of use, no text; requests that are open
        count as sent. An older file is replaced once the new one is complete; its mode is 0600. A
        `BlockCacheTracker` has the same format, and its `load()` reads it (docs/reference/index_file.md).

        Args:
            path: The file.

        Raises:
            OSError: the system refuses; the file is as it was.
            ValueError: the policy has no block index, or the file would be larger than 4 GiB.
        """

    def load_index(self, path: str | bytes | PathLike[str] | PathLike[bytes]) -> list[str]:
        """Take over from a file what workers' caches hold; `vllm_router.Router.load_index()` says how."""

    @property
    def policy(self) -> str:
        """Canonical name of the policy."""

    @property
    def worker_urls(self) -> list[str]:
        """URLs of all workers, in fleet order; what `Batch.workers` indexes."""

    def _worker_rows(
        self,
    ) -> list[tuple[str, bool, bool, int, float, int | None, int, int, int, int, int, str]]: ...
    def _reconcile(
        self,
        source: str,
        workers: list[WorkerSpec] | None,
        complete: bool,
        deleted: list[str],
    ) -> tuple[list[str], list[str], list[str], list[str]]: ...
    def _report_source(self, source: str, kind: str, message: str) -> None: ...
    def _adopt(self, source: str) -> list[str]: ...

def worker_key(url: str) -> str:
    """A text that is equal for URLs of one worker: case of the host, `:80` and `/` at the end do not matter.

    Raises:
        ValueError: workers have no such URL. The message says why, and shows nothing that may be a password.
    """

class replay:  # noqa: N801
    """Traces through the product's own policies, before simulated engines (the submodule `_core.replay`)."""

    presets: ClassVar[dict[str, dict[str, Any]]]
    """Engine coefficients by the name of the engine they stand for, and `what` that is."""

    comparison_policies: ClassVar[tuple[str, ...]]
    """What other routers do, literally; names that `simulate` takes as `policy`, and nothing else does."""

    @staticmethod
    def simulate(
        trace: Mapping[str, Any], routing: Mapping[str, Any], fleet: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Sends every request of a trace through routers to simulated engines, as discrete events.

        Equal arguments give equal results, bit for bit, on one platform. The GIL is released meanwhile, so
        that runs in several threads go side by side; Ctrl-C is heard. Arrays are not copied, and must be
        one-dimensional, contiguous and of exactly the type named.

        Args:
            trace: The requests in order of arrival, n of them, with m blocks in all:
                - `arrival_s` float64[n]: seconds since the start, ascending;
                - `input_tokens` uint32[n], `output_tokens` uint32[n];
                - `block_ids` uint64[m], `block_offsets` int64[n + 1]: the prompt of request i in blocks is
                  `block_ids[block_offsets[i]:block_offsets[i + 1]]`, its last block perhaps partly filled.
                  A block is known by its id and all ids before it;
                - optional `output_block_ids` uint64[k], `output_block_offsets` int64[n + 1]: the blocks that
                  the response fills, with which later prompts may start. Without them a response's blocks
                  fill the caches, but no later prompt has them;
                - optional `session_ids` uint64[n]; without them each request is a session of its own;
                - optional `priority_classes` uint8[n]: 0 interactive, 1 default (without them all), 2 batch;
                  optional `tenants` uint32[n]: numbers, without which all are of one tenant;
                - optional `after_rows` int64[k], `after_offsets` int64[n + 1], `pause_s` float64[n]: request
                  i arrives `pause_s[i]` after all of `after_rows[after_offsets[i]:after_offsets[i + 1]]`
                  ended, which are earlier requests; one that names none arrives at its time;
                - `block_size` int, tokens of one block (512).
                How they arrive: at `arrival_s * time_scale` (1.0); with `poisson_rate` (requests per second,
                0 is off) in the same order as a Poisson process; with `closed_loop` (0 is off) so many under
                way at any time, the next one coming when one ends.
            routing: Options of `Router` by name, `policy` among them; missing ones are as usual. The names of
                the comparison policies (`compare_...`) are taken here and nowhere else. `block_size` is the
                trace's; `max_blocks_per_worker` is the fleet's `cache_blocks`, or those of prefill workers if
                they have more, unless it is given. Besides:
                - `routers` int (1): replicas that know nothing of each other; each request comes to any of
                  them, or with `by_session` (False) to that of its session;
                - `events_delay_s` float (-1.0, off): comparison policies know the caches by KV events this
                  late, and by what was sent and has no token yet, instead of learning from what was sent;
                - `streams` bool (True): with False responses come whole, and a router sees no first token;
                - `admission` str (None, no request waits at a router): priority classes, as lines such as
                  `class batch queue_size=100`; "" has the defaults. `tenant_names` list of str ([]): of the
                  trace's tenants by number, to which lines give weights. `admission_search` bool (True): with
                  False no waiter knows the workers that have its prompt cached;
                - `peer_sync` dict (None, replicas tell each other nothing): `interval_s` float (0.25) between
                  a replica's frames, `stride_tokens` int (256), `loss` float (0.0) of frames,
                  `decisions_delay_s` float (0.0), `cuts` list of dicts `{"time_s": 60.0, "seconds": 30.0,
                  "router": 2}` (-1: all);
                - `holdout_percent` float (0.0) of sessions, which `holdout_policy` (`least_load`) routes;
                - `seed` int (0): of arrivals, replicas and the policies' random choices;
                - `prefix_blocks` int (3): what policies by prefix digest take for the prefix.
            fleet:
                - `workers` int (8);
                - `cache_blocks` int (4096): KV memory of a worker in blocks of the trace, running requests
                  and cache together;
                - `coefficients`: the name of a preset, or a dict of `step_ms`, `prefill_us_per_token`,
                  `attention_ns_per_token2`, `decode_us_per_sequence`, `context_ns_per_token`; missing ones
                  are those of `h200_32b`;
                - `speeds` list of float: how fast each worker is (1.0); `weights` list of float: what the
                  router takes it for (1.0);
                - `max_running` int (256), `step_tokens` int (8192), `min_computed_tokens` int (16);
                - `prompts_first` bool (False): a step computes either prompts or next tokens, prompts first;
                - `stages` dict (None, one stage): the first `prefill` int of the workers compute prompts, the
                  others decode. `prefill_cache_blocks` int of each; `kv_bytes_per_token` float (262144.0),
                  `link_gb_per_s` float (64.0) of a worker in each direction, `transfer_ms` float (1.0) of
                  latency. The policy is that of prefill; the one of decode follows from it, as the server's;
                - `events` list of dicts `{"time_s": 60.0, "kind": "fail", "worker": 2}`: `fail` (its
                  requests are lost; those without a token yet are sent again), `join` (a worker that
                  joins before it fails is not there at the start), `drain` (no new requests), `wipe` (its
                  cache, but for what running requests hold), `speed` (relative, `"speed": 0.5`, from the
                  next step on).

        Returns:
            Arrays of n: `worker` int32 (-1: none; of two stages the decode worker), `prefill_worker` int32
            (-1: none, as of a bypass), `fetched_tokens` uint32 (of the prompt, by decode), `arrival_s`,
            `ttft_s`, `e2e_s` float64 (seconds from the arrival to the first token and to the last; NaN where
            there was none), `hit_tokens` uint32 (of the prompt, in the cache of the worker that computed it),
            `predicted_tokens` uint32 (that the router expected there),
            `status` uint8 (0 finished, 1 no worker could take it, 2 cut short: its worker failed after the
            first token; by admission 3 its queue was full, 4 displaced, 5 timed out), `wait_s` float64 and
            `dispatch` uint8 (with admission, else empty: seconds at the router, and 0 dispatched at once, 1
            from its queue, 2 as of the class above, 255 not), `held_out` uint8 (1: its session is; empty with
            `holdout_percent` 0). `workers`: a dict of arrays, one entry per worker: `requests`,
            `prompt_tokens`, `hit_tokens`, `output_tokens`, `computed_tokens` (of prompts), `fetched_tokens`,
            `steps`, `evicted_blocks`, `held_blocks` (by requests, at the end) uint64, `busy_s` float64.
            `span_s`: seconds from the first arrival to the last end. `load_spread`: the coefficient of
            variation of open requests over the workers, mean over arrivals. `peer_sync_frames`,
            `peer_sync_bytes`: what routers published.

        Raises:
            KeyError: an array that must be there is missing.
            TypeError: an unknown member, or a value of the wrong type.
            ValueError: a value out of range; the message names it and its limit.
        """

    @staticmethod
    def estimate_effect(
        share: float,
        strata: NDArray[np.uint8],
        held_out: NDArray[np.bool_],
        values: NDArray[np.float64],
        alpha: float = 0.05,
    ) -> tuple[float, float, float] | None:
        """The effect of a policy on a mean, from conversations in the order in which they ended, n of them.

        An asymptotic confidence sequence (Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, 2024) of terms
        that compare each conversation with earlier ones of its stratum, as `GET /admin/holdout` shows.

        Args:
            share: Of conversations that are held out, between 0 and 1.
            strata: uint8[n], below 64: what was known of each conversation before it was routed.
            held_out: bool[n].
            values: float64[n]: the outcome.
            alpha: Probability with which the interval misses the effect at any number of conversations.

        Returns:
            Policy minus held out: the estimate, and the ends of its interval. None below 100 held-out ones.

        Raises:
            ValueError: the arrays differ in length, or a share or a stratum is out of range.
        """

class SimulatedWorkerOptions:
    host: str
    port: int
    threads: int
    model: str
    max_model_len: int
    step_ms: float
    prefill_us_per_token: float
    attention_ns_per_token2: float
    decode_us_per_sequence: float
    context_ns_per_token: float
    tool_script: str
    wide_text: bool
    ignore_prompt_ids: bool
    speed: float
    max_running: int
    step_tokens: int
    cache_blocks: int
    block_tokens: int
    fixed_response_bytes: int
    keep_alive_s: float
    late_head: bool
    kv_events_port: int
    kv_events_replay_port: int
    kv_events_buffer_steps: int
    kv_events_polled: bool
    stage: str
    connector: str
    kv_load_failure_policy: str
    kv_lease_s: float
    status_code: int
    fail_first_n: int
    retry_after_s: int
    latency_ms: float
    crash_after: int
    hang: bool
    garbage: bool
    close_early: bool
    close_after_bytes: int
    close_after_tokens: int
    health_status: int
    kv_drop_batches: int
    kv_garbage_batches: int
    kv_stall: bool

class SimulatedWorker:
    def __init__(self, options: SimulatedWorkerOptions) -> None: ...
    @property
    def port(self) -> int: ...
    @property
    def kv_events_port(self) -> int: ...
    @property
    def kv_events_replay_port(self) -> int: ...
    def restart_kv_events(self) -> None: ...
    @property
    def crashed(self) -> bool: ...
    def stop(self) -> None: ...
    def set_faults(self, options: SimulatedWorkerOptions) -> None: ...
    def stats_json(self) -> str: ...
    def set_gate(self, gate: str, closed: bool) -> None: ...
    def waiting_at(self, gate: str) -> int: ...
    def captured(self) -> list[tuple[str, list[tuple[str, str]], bytes]]: ...
    def kv_counters_json(self) -> str: ...
    def fail_handshakes(self, count: int) -> None: ...
    def advance_leases(self, nanos: int) -> None: ...
    @property
    def engine_id(self) -> str: ...

class Configuration:
    """What a server has for the program that reads its settings again; see vllm_router.Server."""

    def next(self, timeout_secs: float) -> tuple[int, bool, bool] | None: ...
    def finish(self, number: int, status: int, body: str) -> None: ...
    def request(self, only_logs: bool = False) -> bool: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    def describe(self, body: str) -> None: ...
    def count(self, result: str, generation: int) -> None: ...

class Server:
    """The HTTP server; see vllm_router.Server."""

    option_names: ClassVar[list[str]]
    live_option_names: ClassVar[list[str]]
    def __init__(self, router: Router, **options: Any) -> None: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def metrics_port(self) -> int | None: ...
    @property
    def tls(self) -> bool: ...
    @property
    def admin_port(self) -> int | None: ...
    @property
    def epp_port(self) -> int | None: ...
    @property
    def epp_health_port(self) -> int | None: ...
    @property
    def any_worker_answered(self) -> bool: ...
    @property
    def has_something_to_reload(self) -> bool: ...
    @property
    def exchanges_cut(self) -> int: ...
    @property
    def leads_peers(self) -> bool: ...
    def host_uses(self) -> list[tuple[str, int, int]]: ...
    @property
    def configuration(self) -> Configuration: ...
    def metrics_text(self) -> str: ...
    def apply(
        self,
        settings: dict[str, Any],
        workers: Sequence[str] | None,
        discovery_guard: float,
        discovery_hold_secs: float,
        dry_run: bool,
    ) -> tuple[list[str], list[str], list[str], list[str]]: ...
    def reload(self) -> None: ...
    def reopen_logs(self) -> None: ...
    def shutdown(self) -> None: ...
    def wait(self, timeout_secs: float = -1.0) -> bool: ...

def configure_log(level: str = "info", log_format: str = "text", directory: str = "") -> None: ...
def set_log_level(level: str) -> None: ...
def log(level: str, message: str) -> None: ...
def flush_log(timeout_secs: float = 2.0) -> bool: ...
def reopen_log() -> None: ...
def log_text(descriptor: int, lines: str) -> None: ...
