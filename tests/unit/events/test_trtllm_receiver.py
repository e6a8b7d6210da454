"""cpp/events/trtllm_receiver.h: numbers, ranks, layers, block sizes and tiers of engines that are polled."""

import json

import pytest

from tests.fakes.trtllm_engine import TrtllmCache
from vllm_router import _core_testing as testing

URL = "http://a:1/kv_cache_events"
SECOND = 1_000_000_000
TOKENS = list(range(64))  # four blocks of 16


class Receiver:
    """One engine, worker 1 unless `sources` says more, whose router blocks have 16 tokens."""

    def __init__(self, sources=((1, URL, 0, True),)):
        self.blocks = testing.ReportedBlocks(16)
        self.blocks.set_workers([(1, 0), (2, 5)])
        self.receiver = testing.TrtllmReceiver(self.blocks)
        self.receiver.set_sources(list(sources))
        self.cache = TrtllmCache()

    def take(self, *events, now=0, url=URL):
        result = self.receiver.take(url, json.dumps(list(events)).encode(), now)
        assert self.blocks.check() == ""
        return result

    def depth(self, tokens=TOKENS, worker=0, **names):
        """Leading blocks that the worker holds on any tier, by its events alone."""
        chain = self.blocks.chain(tokens, **({"lora_name": "m"} | names))
        return self.blocks.merge(chain).get(worker, (0, 0, 0))[2]

    def trust(self, slot=0):
        return self.blocks.trust(slot)

    def report(self, rank=0, now=0):
        return next(status for status in self.receiver.report(now) if status["rank"] == rank)


@pytest.fixture
def engine():
    return Receiver()


def test_an_engine_that_is_heard_from_its_first_event_is_exact(engine):
    assert engine.trust() == "waiting"
    assert engine.report()["connected"] is False
    engine.take()
    assert (engine.trust(), engine.report()["connected"]) == ("waiting", True)
    result = engine.take(engine.cache.created(), engine.cache.stored(TOKENS))
    assert result == {"malformed": False, "events": 2, "lost": 0, "restarted": False}
    assert (engine.trust(), engine.depth(), engine.report()["next"]) == ("exact", 4, 2)
    engine.take(engine.cache.removed(1002, 1003))
    assert engine.depth() == 2


def test_an_engine_that_is_heard_later_is_partial(engine):
    engine.cache.number = 7
    engine.take(engine.cache.stored(TOKENS))
    assert (engine.trust(), engine.depth(), engine.report()["lost"]) == ("partial", 4, 0)


def test_missing_numbers_are_lost_and_what_is_known_stays(engine):
    engine.take(engine.cache.created(), engine.cache.stored(TOKENS[:32]))
    engine.cache.number += 3  # another client has them
    result = engine.take(engine.cache.stored(TOKENS[32:], parent=1001))
    assert (result["lost"], result["restarted"]) == (3, False)
    assert (engine.trust(), engine.depth()) == ("partial", 4)
    assert engine.report()["lost"] == 3


@pytest.mark.parametrize("number", [2 + (1 << 20) + 1, 10**18, 2**63 - 2])
def test_a_number_far_ahead_is_a_restart_and_no_loss(engine, number):
    """Row 8: one forged event made as many lost for good."""
    engine.take(engine.cache.created(), engine.cache.stored(TOKENS))
    engine.cache.number = number
    result = engine.take(engine.cache.stored([7] * 16))
    assert (result["lost"], result["restarted"]) == (0, True)
    engine.cache.number = 2
    assert engine.take(engine.cache.stored([8] * 16))["restarted"]
    assert (engine.report()["lost"], engine.trust()) == (0, "partial")


def test_a_response_that_was_not_taken_is_missed_before_the_next_number(engine):
    engine.take(engine.cache.created(), engine.cache.stored(TOKENS))
    engine.receiver.lose(URL, 0)
    assert (engine.trust(), engine.depth()) == ("partial", 4)
    engine.take(engine.cache.stored([7] * 16))
    assert engine.trust() == "partial"


def test_a_lower_number_is_a_restart(engine):
    engine.take(engine.cache.created(), engine.cache.stored(TOKENS))
    engine.cache.number = 0
    result = engine.take(engine.cache.created(), engine.cache.stored(TOKENS[:16]))
    assert (result["lost"], result["restarted"]) == (0, True)
    assert (engine.trust(), engine.depth()) == ("exact", 1)
    assert engine.report()["incarnations"] == {"sequence": 1}
    engine.cache.number = 1
    engine.take(engine.cache.removed(1))
    assert (engine.trust(), engine.depth()) == ("partial", 0)


def test_the_same_numbers_and_events_as_before_are_a_restart_too(engine):
    first = engine.cache.created()
    engine.take(first)
    assert engine.take(first)["restarted"]
    assert engine.trust() == "exact"


def test_missing_numbers_after_an_outage_are_another_engines(engine):
    engine.take(engine.cache.created(), engine.cache.stored(TOKENS))
    engine.receiver.report_outage(URL)
    assert engine.take()["restarted"] is False
    engine.cache.number += 1
    assert engine.take(engine.cache.stored(TOKENS[:16]))["restarted"]
    assert (engine.trust(), engine.depth()) == ("partial", 1)
    assert engine.report()["incarnations"] == {"evidence": 1}


def test_an_outage_of_an_engine_that_goes_on_loses_nothing(engine):
    engine.take(engine.cache.created(), engine.cache.stored(TOKENS[:32]))
    engine.receiver.report_outage(URL)
    assert engine.take(engine.cache.stored(TOKENS[32:], parent=1001))["restarted"] is False
    assert (engine.trust(), engine.depth()) == ("exact", 4)


def test_numbers_of_one_response_ascend(engine):
    first, second, third = engine.cache.created(), engine.cache.stored(TOKENS), engine.cache.removed(1003)
    engine.take(first, third, second)
    assert (engine.trust(), engine.depth()) == ("partial", 0)
    assert engine.report()["dropped"] == {"duplicate": 1}


def test_a_rank_has_numbers_and_a_cache_of_its_own(engine):
    other = TrtllmCache(rank=1)
    engine.take(engine.cache.created(), other.created(), engine.cache.stored(TOKENS[:16]))
    engine.take(other.stored(TOKENS[:32]))
    assert [status["next"] for status in engine.receiver.report(0)] == [2, 2]
    assert (engine.trust(), engine.depth()) == ("exact", 2)  # the rank that holds most
    other.number += 1
    engine.take(other.removed(1))
    assert (engine.report()["trust"], engine.report(1)["trust"]) == ("exact", "partial")
    assert engine.trust() == "partial"


def test_a_rank_that_has_told_nothing_does_not_matter(engine):
    other = TrtllmCache(rank=3)
    engine.take(other.created(), other.stored(TOKENS))
    assert (engine.report()["trust"], engine.trust(), engine.depth()) == ("waiting", "exact", 4)


def test_ranks_that_are_workers_of_their_own():
    engine = Receiver([(1, URL, 0, False), (2, URL, 1, False)])
    other, third = TrtllmCache(rank=1), TrtllmCache(rank=2)
    engine.take(engine.cache.created(), other.created(), other.stored(TOKENS), third.created())
    assert (engine.depth(worker=0), engine.depth(worker=5)) == (0, 4)
    assert (engine.trust(0), engine.trust(5)) == ("exact", "exact")
    assert engine.report()["dropped"] == {"wrong_rank": 1}


def test_ranks_are_bounded(engine):
    for rank in range(1, 100):
        engine.take(TrtllmCache(rank=rank).created())
    assert len(engine.receiver.report(0)) == 64
    assert engine.report()["dropped"] == {"wrong_rank": 36}


def test_only_the_layers_that_reach_furthest_count(engine):
    narrow = TrtllmCache(window=128)
    wide = engine.cache
    wide.number = 1
    engine.take(narrow.stored(TOKENS))
    assert engine.depth() == 4  # until others are heard of
    engine.take(wide.created())
    assert (engine.depth(), engine.trust()) == (0, "exact")
    narrow.number = 2
    engine.take(narrow.stored(TOKENS))
    assert (engine.depth(), engine.report()["dropped"]) == (0, {"other_window": 1})
    wide.number = 3
    engine.take(wide.stored(TOKENS))
    assert engine.depth() == 4


def test_corrections_are_bounded(engine):
    for number in range(40):
        cache = TrtllmCache(window=100 + number)
        cache.number = number
        engine.take(cache.stored(TOKENS))
    assert engine.report()["dropped"] == {"other_window": 40 - 17}
    assert engine.depth() == 4


def test_the_block_size_is_that_of_the_first_two_blocks(engine):
    engine.cache.block_size = 32
    engine.take(engine.cache.created(), engine.cache.stored(TOKENS))
    assert (engine.report()["block_size"], engine.depth()) == (32, 4)
    engine.take(engine.cache.stored([7] * 16))
    assert engine.depth([7] * 16) == 0
    assert engine.report()["dropped"] == {"partial_block": 1}


def test_the_end_of_a_prompt_is_no_block_size(engine):
    engine.cache.block_size = 32
    engine.take(engine.cache.created(), engine.cache.stored([7] * 16), engine.cache.stored([8] * 5))
    assert (engine.depth([7] * 16), engine.depth([8] * 5)) == (1, 0)
    engine.take(engine.cache.stored(TOKENS))
    assert (engine.depth([7] * 16), engine.depth(), engine.trust()) == (0, 4, "exact")
    engine.take(engine.cache.removed(1000))  # the end, which is not known any more
    assert engine.report()["unknown_removed"] == 1


def test_a_block_size_that_the_routers_does_not_divide_is_a_mismatch(engine):
    engine.cache.block_size = 20
    engine.take(engine.cache.created(), engine.cache.stored([*range(60)]))
    assert engine.report()["dropped"] == {"block_size": 1}
    assert engine.trust() == "mismatch"


def test_a_block_that_moves_is_held_all_the_time(engine):
    engine.take(engine.cache.created(), engine.cache.stored(TOKENS))
    engine.take(engine.cache.moved(1003, 0, 1))
    assert (engine.depth(), engine.report()["blocks"]) == (4, [3, 1, 0])
    engine.take(engine.cache.moved(1003, 1, 0))
    assert engine.report()["blocks"] == [4, 0, 0]
    engine.take(engine.cache.moved(1003, 0, 1), engine.cache.moved(1002, 0, 1))
    engine.take(engine.cache.removed(1003, 1002))
    assert (engine.depth(), engine.report()["blocks"]) == (2, [2, 0, 0])
    assert engine.report()["unknown_removed"] == 0
    engine.take(engine.cache.removed(77))
    assert engine.report()["unknown_removed"] == 1


def test_a_block_on_an_unknown_tier_is_not_held(engine):
    engine.take(engine.cache.created(), engine.cache.stored(TOKENS))
    engine.take(engine.cache.moved(1003, 0, 2))
    assert (engine.depth(), engine.report()["dropped"]) == (3, {"unknown_medium": 1})


def test_blocks_that_are_told_again_are_held_once(engine):
    engine.take(engine.cache.created(), engine.cache.stored(TOKENS))
    engine.cache.names = 1000
    engine.take(engine.cache.stored(TOKENS))
    engine.take(engine.cache.removed(1000, 1001, 1002, 1003))
    assert engine.depth() == 0


def test_pictures_adapters_and_salts_are_not_the_plain_prompt(engine):
    picture = {"mm_keys": [{"type": "mm_key", "hash": "ab", "start_offset": 0}]}
    engine.take(engine.cache.created(), engine.cache.stored(TOKENS, **picture))
    engine.take(engine.cache.stored(TOKENS, lora_id=7))
    engine.take(engine.cache.stored(TOKENS, cache_salt="tenant"))
    assert (engine.depth(), engine.depth(cache_salt="tenant")) == (0, 4)
    assert engine.report()["dropped"] == {"namespace": 1}


def test_a_response_that_is_no_array_changes_nothing(engine):
    engine.take(engine.cache.created(), engine.cache.stored(TOKENS))
    assert engine.receiver.take(URL, b"<html>", 0)["malformed"]
    assert (engine.depth(), engine.report()["connected"]) == (4, False)
    assert engine.report()["dropped"] == {"malformed_batch": 1}
    engine.take()
    assert (engine.report()["connected"], engine.report()["reconnects"]) == (True, 1)


def test_malformed_events_have_numbers(engine):
    engine.take(engine.cache.created(), engine.cache.event("stored", blocks=1), engine.cache.stored(TOKENS))
    assert (engine.trust(), engine.depth()) == ("exact", 4)
    assert engine.report()["dropped"] == {"malformed_event": 1}
    engine.take({"event_id": "x"}, engine.cache.removed(1003))
    assert (engine.trust(), engine.depth()) == ("exact", 3)
    assert engine.report()["dropped"] == {"malformed_event": 1, "unnumbered": 1}


def test_an_engine_most_of_whose_events_cannot_be_used_is_not_believed(engine):
    engine.take(engine.cache.created(), engine.cache.stored(TOKENS))
    for _ in range(60):
        engine.take(engine.cache.event("stored", blocks=1), engine.cache.event("removed", block_hashes=1))
    assert engine.trust() == "mismatch"


def test_a_worker_that_computes_and_tells_nothing_is_silent(engine):
    engine.take(engine.cache.created(), engine.cache.stored(TOKENS))
    engine.blocks.owe(1, 4)
    engine.receiver.watch(1 * SECOND)
    engine.receiver.watch(10 * SECOND)
    assert engine.trust() == "exact"
    engine.receiver.watch(12 * SECOND)
    assert engine.trust() == "silent"
    assert engine.report()["trust"] == "silent"
    engine.take(now=13 * SECOND)  # a response without events settles nothing
    assert engine.trust() == "silent"
    engine.take(engine.cache.stored([7] * 32), now=14 * SECOND)
    assert engine.trust() == "exact"


def test_an_engine_that_does_not_respond_is_not_exact_for_long(engine):
    engine.take(engine.cache.created(), engine.cache.stored(TOKENS))
    engine.receiver.miss(URL, SECOND)
    engine.receiver.watch(20 * SECOND)
    assert engine.trust() == "exact"
    engine.receiver.watch(32 * SECOND)
    assert engine.trust() == "partial"
    engine.take(now=33 * SECOND)
    assert engine.trust() == "exact"


def test_more_blocks_than_the_cache_has_prove_lost_removals(engine):
    engine.take(engine.cache.created(gpu_blocks=10), engine.cache.stored([*range(160)]))
    engine.receiver.watch(SECOND)
    assert engine.report()["coverage"] == 1.0
    engine.take(engine.cache.stored([7] * 32))
    engine.receiver.watch(20 * SECOND)
    assert engine.report()["incarnations"] == {"audit": 1}
    assert (engine.trust(), engine.depth()) == ("partial", 0)


def test_a_resync_forgets_the_worker(engine):
    engine.take(engine.cache.created(), engine.cache.stored(TOKENS))
    engine.receiver.resync(1, 0)
    assert (engine.trust(), engine.depth()) == ("partial", 0)
    engine.take(engine.cache.stored(TOKENS))
    assert (engine.trust(), engine.depth(), engine.report()["lost"]) == ("partial", 4, 0)


def test_sources_come_and_go(engine):
    engine.take(engine.cache.created(), engine.cache.stored(TOKENS))
    other = "http://b:1/kv_cache_events"
    engine.receiver.set_sources([(1, URL, 0, True), (2, other, 0, True)])
    assert (engine.trust(0), engine.depth(), engine.trust(5)) == ("exact", 4, "waiting")
    engine.receiver.set_sources([(2, other, 0, True)])
    assert (engine.trust(0), engine.depth(), engine.trust(5)) == ("off", 0, "waiting")
    assert engine.take(engine.cache.removed(1))["events"] == 0
    engine.blocks.set_workers([(1, 0)])
    engine.take(TrtllmCache().stored(TOKENS), url=other)
    assert engine.trust(5) == "off"
