"""cpp/bindings/index_file.h: indexes with workers by name, saved, loaded, pickled, damaged."""

import copy
import os
import pickle
import random
import struct
import threading
from pathlib import Path
from typing import Any

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_router import BlockCacheTracker, RouterError, StringTree, TokenTree
from vllm_router.errors import IndexFileError, WorkerNotFoundError

ORDERS = ["lru", "lfu", "fifo", "mru", "filo", "priority"]
WORKERS = ["http://a:1", "http://b:1", "ü", ""]
KINDS = ["tracker", *(f"{kind}-{order}" for kind in ("string", "token") for order in ORDERS)]


def make(kind: str, max_size: int = 400) -> Any:
    name, _, order = kind.partition("-")
    if name == "tracker":
        return BlockCacheTracker(4, 12, seed=7)
    if name == "string":
        return StringTree(max_tree_size=max_size, eviction=order)
    return TokenTree(4, max_tree_size=max_size, eviction=order)


def prompt(kind: str, rng: random.Random) -> Any:
    words = [rng.choice([1, 1, 1, 2]) for _ in range(rng.randrange(30))]
    return "".join(map(str, words)) if kind.startswith("string") else words


def live(index: Any, kind: str, rng: random.Random, steps: int) -> list[Any]:
    """A random history, and all that it says."""
    said: list[Any] = []
    for _ in range(steps):
        text, worker, what = prompt(kind, rng), rng.choice(WORKERS), rng.random()
        if what < 0.6:
            if kind == "tracker":
                index.record_request(text, worker)
            else:
                index.insert(text, worker, priority=rng.randrange(3))
        elif what < 0.65 and worker in index.workers:
            index.remove_worker(worker)
            swept(index)  # how far that has come, and so which place is free, depends on the order in memory
        elif what < 0.7 and worker in index.workers:
            said.append(index.evict_worker(worker, rng.randrange(20)))
        elif what < 0.75 and worker in index.workers and kind == "tracker":
            index.set_capacity(rng.randrange(4, 20), worker)
        said.append(index.match(text))
        if kind == "tracker":
            said.append(index.find_best_worker(text))
            said.append({name: index.block_count(name) for name in index.workers if name is not None})
        else:
            said.append({name: index.size(name) for name in index.workers if name is not None})
            said.append(index.size())
    return said


def swept(index: Any) -> Any:
    while index.sweep() if isinstance(index, BlockCacheTracker) else index.trim(10_000):
        pass
    return index


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**32), steps=st.integers(0, 60))
def test_what_is_loaded_goes_on_as_what_was_saved(
    kind: str, seed: int, steps: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """mending row 47: equal answers and equal evictions under any continuation, removals included."""
    index = make(kind)
    live(index, kind, random.Random(seed), steps)
    path = tmp_path_factory.getbasetemp() / "saved.index"
    index.save(path)
    loaded = type(index).load(path)
    assert loaded.workers == index.workers
    assert repr(loaded) == repr(index)
    assert live(loaded, kind, random.Random(seed + 1), 40) == live(index, kind, random.Random(seed + 1), 40)
    assert loaded.workers == index.workers
    ignored = {"bytes", "bytes_per_pair", "backlog_bytes", "runs", "segments"}
    stats = [
        {k: v for k, v in each.stats().items() if k not in ignored} for each in (swept(loaded), swept(index))
    ]
    assert stats[0] == stats[1]


@pytest.mark.parametrize("kind", KINDS[:2] + KINDS[-1:])
def test_pickles_and_copies_are_indexes_of_their_own(kind: str) -> None:
    index = make(kind)
    live(index, kind, random.Random(1), 30)
    text = prompt(kind, random.Random(2)) + prompt(kind, random.Random(3))
    expected = index.match(text)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        other = pickle.loads(pickle.dumps(index, protocol))
        assert type(other) is type(index)
        assert other.match(text) == expected
    for other in (copy.copy(index), copy.deepcopy(index)):
        other.remove_worker(next(name for name in other.workers if name is not None))
        assert index.match(text) == expected
    with pytest.raises(IndexFileError, match=f"pickled {type(index).__name__} is not usable: it has 3 bytes"):
        type(index)._from_image(b"abc")


@pytest.mark.parametrize("path", ["str", "bytes", "Path"])
def test_a_path_is_what_python_takes_as_one(path: str, tmp_path: Path) -> None:
    """mending row 47: and errors of the system are Python's own."""
    name: Any = tmp_path / "x.index"
    name = {"str": str(name), "bytes": os.fsencode(name), "Path": name}[path]
    tracker = make("tracker")
    tracker.save(name)
    tracker.save(name)
    assert [each.name for each in tmp_path.iterdir()] == ["x.index"]
    assert BlockCacheTracker.load(name).workers == []
    with pytest.raises(FileNotFoundError) as missing:
        StringTree.load(tmp_path / "none")
    assert missing.value.filename == str(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        tracker.save(tmp_path)
    with pytest.raises(TypeError):
        tracker.save(7)
    with pytest.raises(ValueError, match="null byte"):
        tracker.load("a\0b")


def test_an_error_names_the_file_what_is_wrong_and_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    make("token-lru").save(path)
    with pytest.raises(IndexFileError) as error:
        BlockCacheTracker.load(path)
    assert str(error.value) == (
        f'index file "{path}" is not usable: its kind is 3 (TokenTree); here a BlockCacheTracker is loaded; '
        "save it again, or start with an empty index"
    )
    assert isinstance(error.value, ValueError)
    assert isinstance(error.value, RouterError)
    with pytest.raises(IndexFileError, match="is not a regular file; name the file that save"):
        TokenTree.load(tmp_path)
    os.truncate(path, 5 << 30)
    with pytest.raises(IndexFileError, match="has 5368709120 bytes; at most 4294967296 are read"):
        TokenTree.load(path)


def sealed(image: bytes) -> bytes:
    """With a checksum that fits."""
    return image + struct.pack("<Q", xxhash.xxh3_64_intdigest(image))


def images() -> dict[str, bytes]:
    made = {}
    for kind in ("tracker", "string-lru", "token-lfu"):
        index = make(kind)
        live(index, kind, random.Random(5), 60)
        made[kind] = index.__reduce__()[1][-1]
    return made


IMAGES = images()


@pytest.mark.parametrize("kind", IMAGES)
@given(data=st.data())
def test_a_damaged_file_is_refused(kind: str, data: st.DataObject) -> None:
    """mending row 47: one flipped bit, a cut, a byte more: all are found."""
    image = bytearray(IMAGES[kind])
    how = data.draw(st.sampled_from(["flip", "cut", "extend"]))
    if how == "flip":
        image[data.draw(st.integers(0, len(image) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    elif how == "cut":
        del image[data.draw(st.integers(0, len(image) - 1)) :]
    else:
        image += data.draw(st.binary(min_size=1, max_size=9))
    with pytest.raises(IndexFileError):
        type(make(kind))._from_image(bytes(image))


def reads_or_refuses(kind: str, image: bytes) -> None:
    try:
        index = type(make(kind))._from_image(image)
    except IndexFileError:
        return
    # Odd, but whole: it lives and ends as any other.
    live(index, kind, random.Random(3), 20)
    pickle.loads(pickle.dumps(index))
    for name in index.workers:
        if name is not None:
            index.remove_worker(name)
    swept(index)
    assert index.stats()["pairs"] == 0


@pytest.mark.parametrize("kind", IMAGES)
@settings(max_examples=settings.default.max_examples * 4)
@given(data=st.data())
def test_a_forged_file_does_no_harm(kind: str, data: st.DataObject) -> None:
    """mending row 47: with a checksum that fits, numbers may say anything; all are checked."""
    image = bytearray(IMAGES[kind][:-8])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(24, len(image) - 1))
        how = data.draw(st.sampled_from(["byte", "u32", "u64", "cut", "copy"]))
        if how == "byte":
            image[at] = data.draw(st.integers(0, 255))
        elif how == "cut":
            del image[at : at + data.draw(st.integers(1, 40))]
        elif how == "copy":
            image[at:at] = image[at : at + data.draw(st.integers(1, 40))]
        else:
            size = 4 if how == "u32" else 8
            number = data.draw(st.sampled_from([0, 1, 2, 16_385, 2**31, 2 ** (8 * size) - 1]))
            image[at : at + size] = number.to_bytes(size, "little")
        if len(image) < 26:
            break
    image[16:24] = struct.pack("<Q", len(image) - 24)
    reads_or_refuses(kind, sealed(bytes(image)))


@pytest.mark.parametrize("kind", IMAGES)
def test_every_byte_may_be_forged(kind: str) -> None:
    """mending row 47: each byte of the payload at its extremes."""
    image = IMAGES[kind][:-8]
    for at in range(24, len(image)):
        for byte in (0, image[at] ^ 1, 255):
            reads_or_refuses(kind, sealed(image[:at] + bytes([byte]) + image[at + 1 :]))


@pytest.mark.parametrize("kind", IMAGES)
def test_an_index_is_saved_whole_while_others_change_it(kind: str) -> None:
    """mending row 47: workers come and go, prompts too; each image is of one moment."""
    index = make(kind, max_size=4000)
    ended = threading.Event()

    def change(seed: int) -> None:
        rng = random.Random(seed)
        while not ended.is_set():
            try:
                live(index, kind, rng, 5)
            except WorkerNotFoundError:  # the other thread has removed it
                continue

    threads = [threading.Thread(target=change, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(50):
            copy.copy(index)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
