"""cpp/events/kv_push.h and Router.push_kv_events: numbers, trust, what cannot be used."""

import msgpack
import numpy as np
import pytest

from vllm_router import Router, WorkerNotFoundError

A, B = "http://a:8000", "http://b:8000"
IDS = [*range(64)]


def stored(hashes, ids, parent=None, **more):
    return {
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": parent,
        "token_ids": ids,
        "block_size": 16,
        **more,
    }


def removed(hashes, **more):
    return {"type": "BlockRemoved", "block_hashes": hashes, **more}


def matched(router, ids=IDS, **request):
    """Leading blocks by worker; one more id, since the last one is never cached."""
    workers = router.explain(token_ids=[*ids, 999], **request).workers
    return {worker.url: worker.matched for worker in workers}


@pytest.fixture(params=["auto", "vllm_cache_aware", "kv_logit", "kv_aware", "kv_overlap"])
def router(request):
    return Router(request.param, [A, B], seed=1)


def test_what_is_pushed_is_matched(router):
    assert router.push_kv_events(A, [stored([1, 2, 3, 4], IDS)]) == 1
    assert matched(router) == {A: 4, B: 0}
    assert router.push_kv_events(A, [removed([3, 4])]) == 2
    assert matched(router) == {A: 2, B: 0}
    assert router.push_kv_events(A, [stored([3], IDS[32:48], 2, medium="CPU")]) == 3
    assert matched(router) == {A: 3, B: 0}
    assert router.push_kv_events(A, [{"type": "AllBlocksCleared"}]) == 4
    assert matched(router) == {A: 0, B: 0}


def test_events_replace_what_was_learned(router):
    router.push_kv_events(A, [])
    router.push_kv_events(B, [])
    chosen = router.select(token_ids=[*IDS, 999])
    url = chosen.worker_url
    assert matched(router)[url] == 4  # predicted, until its events come
    chosen.finish(status=200)
    other = B if url == A else A
    router.push_kv_events(other, [stored([1, 2], IDS[:32])])
    assert matched(router)[other] == 2


def test_numbers_must_follow_each_other(router):
    assert router.push_kv_events(A, [stored([1], IDS[:16])], seq=0) == 1
    with pytest.raises(
        ValueError, match="seq is 5; 1 comes next for http://a:8000: push from there on, or with reset=T"
    ):
        router.push_kv_events(A, [stored([2], IDS[16:32], 1)], seq=5)
    assert matched(router) == {A: 1, B: 0}
    assert router.push_kv_events(A, [stored([2], IDS[16:32], 1)], seq=1) == 2
    assert router.push_kv_events(A, [stored([7], IDS[:16])], seq=5, reset=True) == 6
    assert matched(router) == {A: 1, B: 0}


def test_a_source_that_begins_later_adds_to_what_was_learned():
    router = Router("auto", [A, B], seed=1)
    with router.select(token_ids=[*IDS, 999]) as ticket:
        url = ticket.worker_url
    router.push_kv_events(url, [stored([1], IDS[:16])], seq=3)
    assert matched(router)[url] == 4  # partial: the larger of both
    router.push_kv_events(url, [{"type": "AllBlocksCleared"}, stored([1], IDS[:16])])
    assert matched(router)[url] == 1  # a clear makes it exact


def test_bytes_are_as_an_engine_publishes_them():
    router = Router("auto", [A], seed=1)
    payload = msgpack.packb([1.5, [["BlockStored", [11, 12], None, IDS[:32], 16, None, "GPU"]], 0])
    assert router.push_kv_events(A, payload, seq=0) == 1
    assert matched(router) == {A: 2}
    with pytest.raises(ValueError, match="no batch of KV events"):
        router.push_kv_events(A, payload[:-1], seq=1)
    assert router.push_kv_events(A, msgpack.packb([0, [["BlockRemoved", [12], "GPU"]]]), seq=1) == 2
    assert matched(router) == {A: 1}


def test_ranks_are_caches_of_their_own():
    router = Router("auto", [A], seed=1)
    router.push_kv_events(A, [stored([1], IDS[:16])], rank=0)
    router.push_kv_events(A, [stored([1, 2], IDS[:32])], rank=1)
    assert matched(router) == {A: 2}  # the one that holds most counts
    router.push_kv_events(A, [{"type": "AllBlocksCleared"}], rank=1)
    assert matched(router) == {A: 1}


def test_prompts_of_the_model_alone_are_matched():
    router = Router("auto", [A], seed=1)
    router.push_kv_events(A, [stored([1], IDS[:16])], model="llama")
    assert matched(router) == {A: 1}  # a prompt without a model is for the only one
    assert matched(router, model="llama") == {A: 1}
    assert matched(router, model="other") == {A: 0}
    router.select(token_ids=IDS, model="other").finish(status=200)
    router.select(prompt="some text, long enough for a block or two of bytes" * 3).finish(status=200)
    unmatched = router.stats()["block_index"]["unmatched_prompts"]
    assert unmatched == {"no_token_ids": 1, "other_model": 1}


def test_integers_of_numpy_tuples_and_large_hashes_are_taken():
    router = Router("auto", [A], seed=1)
    ids = np.arange(32, dtype=np.uint32)
    router.push_kv_events(A, ({**stored((2**64 - 1, -5), tuple(ids)), "block_size": np.int64(16)},))
    assert matched(router, [*range(32)]) == {A: 2}
    router.push_kv_events(A, [removed([2**64 - 5])])  # the same 64 bits
    assert matched(router, [*range(32)]) == {A: 1}


@pytest.mark.parametrize(
    ("events", "error", "sentence"),
    [
        ("text", TypeError, "events is of type str; it is a list of events, or bytes"),
        ({"type": "BlockRemoved"}, TypeError, "events is of type dict"),
        ([object()], TypeError, "events have a value of type object"),
        ([{1: 2}], TypeError, "events have a key that is no text"),
        ([2**64], ValueError, "events have an integer of more than 64 bits"),
        ([-(2**63) - 1], ValueError, "events have an integer of more than 64 bits"),
        (b"", ValueError, "events are no batch of KV events in msgpack; nothing was applied"),
    ],
)
def test_bad_events_are_named(events, error, sentence):
    router = Router("auto", [A])
    with pytest.raises(error, match=sentence):
        router.push_kv_events(A, events)
    assert router.push_kv_events(A, []) == 1


def test_nesting_is_limited():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="nested deeper than 16 levels"):
        Router("auto", [A]).push_kv_events(A, deep)


def test_what_cannot_be_used_is_a_warning():
    router = Router("auto", [A])
    with pytest.warns(UserWarning, match="2 of the events were not applied, most of them as block_size"):
        router.push_kv_events(A, [{**stored([n], IDS[:n]), "block_size": n} for n in (24, 8)])
    with pytest.warns(UserWarning, match="1 of the events were not applied, most of them as unknown_tag"):
        router.push_kv_events(A, [{"type": "BlockPolished"}, stored([1], IDS[:16])])
    assert matched(router) == {A: 0}  # three of its four events: a mismatch
    router.push_kv_events(A, [stored([2], IDS[16:32], 1), stored([3], IDS[32:48], 2)])
    assert matched(router) == {A: 3}


def test_who_is_not_there_is_named():
    router = Router("auto", [A])
    with pytest.raises(WorkerNotFoundError, match='worker "http://c:8000" is not in the fleet'):
        router.push_kv_events("http://c:8000", [])
    with pytest.raises(ValueError, match="the policy random matches no blocks"):
        Router("random", [A]).push_kv_events(A, [])


def test_a_worker_that_comes_back_begins_anew():
    router = Router("auto", [A, B], seed=1)
    router.push_kv_events(A, [stored([1], IDS[:16])])
    router.remove_worker(A)
    router.add_worker(A)
    assert matched(router)[A] == 0
    assert router.push_kv_events(A, [stored([1, 2], IDS[:32])]) == 1
    assert matched(router)[A] == 2


def test_predictions_of_a_cache_that_was_emptied_are_dropped(router):
    """Without a server predictions lived for ever."""
    router.push_kv_events(A, [])
    for emptied in ({"events": [{"type": "AllBlocksCleared"}]}, {"events": [], "reset": True}):
        router.select(token_ids=[*IDS, 999], exclude=[B]).finish(status=200)
        assert matched(router)[A] == 4
        router.push_kv_events(A, **emptied)
        assert matched(router)[A] == 0


def test_what_was_not_accepted_names_no_model():
    """A prompt without a model met nothing any more, since a rejected push had named another one."""
    router = Router("auto", [A], seed=1)
    router.push_kv_events(A, [stored([1], IDS[:16])], model="llama")
    with pytest.raises(ValueError, match="nothing was applied"):
        router.push_kv_events(A, b"\xff", model="typo", rank=1)
    with pytest.raises(ValueError, match="1 comes next"):
        router.push_kv_events(A, [], model="llama", seq=7)
    assert matched(router) == {A: 1}


def test_a_rank_has_blocks_of_one_model():
    router = Router("auto", [A], seed=1)
    router.push_kv_events(A, [stored([1], IDS[:16])], model="llama")
    with pytest.raises(ValueError, match="model is another than the one whose blocks this rank has"):
        router.push_kv_events(A, [stored([2], IDS[16:32], 1)], model="qwen")
    router.push_kv_events(A, [stored([1], IDS[:16])], model="qwen", reset=True)
    assert matched(router, model="qwen") == {A: 1}
    assert matched(router, model="llama") == {A: 0}


def test_models_are_limited():
    router = Router("auto", [A], seed=1)
    with pytest.raises(ValueError, match="model is a name of 257 bytes"):
        router.push_kv_events(A, [], model="m" * 257)
    for number in range(256):
        router.push_kv_events(A, [], model=f"m{number}", rank=number)
    with pytest.raises(ValueError, match="one more than the 256 that were pushed"):
        router.push_kv_events(A, [], model="another", reset=True)


@pytest.mark.parametrize("again", [{"reset": True}, {"events": [{"type": "AllBlocksCleared"}]}])
def test_a_new_beginning_forgets_what_could_not_be_used(again):
    router = Router("auto", [A], seed=1)
    with pytest.warns(UserWarning, match="4 of the events"):
        router.push_kv_events(A, [{"type": "BlockPolished"}] * 4)
    events = again.pop("events", [])
    router.push_kv_events(A, [*events, stored([1], IDS[:16])], **again)
    assert matched(router) == {A: 1}


def test_a_prompt_without_a_model_is_for_the_only_one():
    router = Router("auto", [A, B], seed=1)
    router.push_kv_events(A, [stored([1], IDS[:16])], model="llama")
    assert matched(router)[A] == 1
    router.push_kv_events(B, [stored([1, 2], IDS[:32])], model="mistral")
    assert matched(router) == {A: 0, B: 0}  # of which of both, nothing tells
    assert matched(router, model="llama") == {A: 1, B: 0}
    assert matched(router, model="mistral") == {A: 0, B: 2}
    router.push_kv_events(B, [stored([3, 4, 5], IDS[:48])], rank=1)
    assert matched(router) == {A: 0, B: 3}


def test_events_that_cannot_be_used_are_not_believed_to_be_all():
    router = Router("auto", [A], seed=1)
    router.select(token_ids=[*IDS, 999]).finish(status=200)
    with pytest.warns(UserWarning, match="most of them as block_size"):
        router.push_kv_events(A, [{**stored([1], IDS[:24]), "block_size": 24}])
    assert matched(router) == {A: 4}  # as it was sent


def test_ranks_are_limited():
    with pytest.raises(
        ValueError, match="rank is 256; it is a data-parallel rank and must be between 0 and 255"
    ):
        Router("auto", [A]).push_kv_events(A, [], rank=256)
