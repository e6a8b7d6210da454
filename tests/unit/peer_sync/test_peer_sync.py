"""cpp/peer_sync/peer_sync.h: what one router tells, and what another makes of it."""

import pytest

from tests.models import peer_frame
from vllm_router import _core_testing as testing
from vllm_router import hash_blocks

A, B = "http://a:8000", "http://b:8000"
LOAD = (3, 1, 12_000, 768, 36_000)
PROMPT = hash_blocks(list(range(8)), 1).tolist()


def router(number, workers=(A, B), **options):
    made = testing.PeerRouter(number, **options)
    made.declare([(url, "") for url in workers])
    return made


def tell(sender, *others, now):
    for frame in sender.write_frames(now):
        for other in others:
            other.read(frame, now)


def read(frame, key=""):
    return testing.read_peer_frame(frame, key)


def test_the_first_frames_are_full_and_the_next_tell_what_changed():
    one = router(1)
    one.set_load(A, LOAD)
    (first,) = map(read, one.write_frames(0.0))
    (again,) = map(read, one.write_frames(0.25))  # whatever two lack, peers drop
    assert first["full"]
    assert (again["names"], again["loads"]) == (first["names"], first["loads"])
    assert [url for _, _, url in first["names"]] == [A, B]
    assert [counts for _, counts in first["loads"]] == [LOAD, (0, 0, 0, 0, 0)]
    one.set_load(B, LOAD)
    (second,) = map(read, one.write_frames(0.5))
    assert not second["full"]
    assert second["names"] == []
    assert second["loads"] == [(first["names"][1][0], LOAD)]
    assert (first["sequence"], second["sequence"]) == (1, 3)
    (third,) = map(read, one.write_frames(2.25))  # each two seconds
    assert third["full"]
    assert len(third["loads"]) == 2


def test_a_worker_that_joins_is_told_at_once():
    one = router(1)
    for now in (0.0, 0.25):
        one.write_frames(now)
    one.declare([(A, ""), (B, ""), ("http://c:8000", "")])
    (frame,) = map(read, one.write_frames(0.5))
    assert frame["full"]
    assert len(frame["names"]) == 3


def test_loads_reach_the_policies_of_another_router():
    one, other = router(1), router(2)
    one.set_load(B, LOAD)
    tell(one, other, now=0.0)
    assert other.peer_load(B) == (0, 0, 0, 0, 0)  # until it is summed
    other.update(0.0)
    assert other.peer_load(B) == LOAD
    assert other.choose(PROMPT)[0] == A  # b is busy through the other router


def test_a_decision_of_one_router_is_known_to_all_in_strides():
    one, other = router(1), router(2)
    tell(one, other, now=0.0)
    url, matched = one.choose(PROMPT[:6])
    assert matched == 0
    tell(one, other, now=0.25)
    assert other.choose(PROMPT) == (url, 4)  # one stride of four; the two beyond are not told
    assert one.choose(PROMPT[:6]) == (url, 6)
    assert other.counts()["decisions_applied"] == 1


def test_a_request_that_never_reached_its_worker_leaves_nothing_here():
    one = router(1, workers=[A])
    one.choose(PROMPT)
    one.end(0, "not_sent")
    assert one.choose(PROMPT) == (A, 0)


def test_a_router_with_other_strides_is_heard_for_its_loads_alone():
    one, other = router(1, stride_tokens=2), router(2)
    one.set_load(B, LOAD)
    tell(one, other, now=0.0)
    one.choose(PROMPT)
    tell(one, other, now=0.25)
    other.update(0.25)
    assert other.counts()["decisions_foreign"] == 1
    assert other.counts()["decisions_applied"] == 0
    assert other.peer_load(B) == LOAD


def test_workers_that_only_the_other_has_are_counted_and_nothing_else():
    one, other = router(1, workers=[B]), router(2, workers=[A])
    tell(one, other, now=0.0)
    one.choose(PROMPT)
    tell(one, other, now=0.25)
    assert other.unknown_workers == 1
    assert other.counts()["decisions_unknown_worker"] == 1


def test_an_engine_that_started_anew_is_another_worker_to_those_who_know_its_life():
    one, other, third = (testing.PeerRouter(number) for number in (1, 2, 3))
    one.declare([(A, "pod-1")])
    other.declare([(A, "pod-2")])
    third.declare([(A, "")])  # its source names no lives
    one.set_load(A, LOAD)
    tell(one, other, third, now=0.0)
    for each in (other, third):
        each.update(0.0)
    assert other.peer_load(A) == (0, 0, 0, 0, 0)
    assert third.peer_load(A) == LOAD
    other.declare([(A, "pod-1")])
    tell(one, other, now=2.0)
    other.update(2.0)
    assert other.peer_load(A) == LOAD


def test_a_cache_that_was_lost_is_forgotten_by_all():
    one, other = router(1, workers=[A]), router(2, workers=[A])
    tell(one, other, now=0.0)
    other.choose(PROMPT)
    assert other.choose(PROMPT) == (A, 8)
    one.tell_forgotten(A)
    tell(one, other, now=0.25)
    assert other.choose(PROMPT) == (A, 0)


def test_a_suspect_is_to_be_asked():
    one, other = router(1), router(2)
    tell(one, other, now=0.0)
    one.tell_suspect(B, 1)
    (frame,) = one.write_frames(0.25)
    assert other.read(frame, 0.25) == [B]


def test_a_frame_heard_twice_counts_once_and_an_older_one_tells_decisions_only():
    one, other = router(1), router(2)
    tell(one, other, now=0.0)
    url, _ = one.choose(PROMPT)
    one.set_load(B, LOAD)
    (late,) = one.write_frames(0.25)
    one.set_load(B, (0, 0, 0, 0, 0))
    tell(one, other, now=0.5)
    for _ in range(2):
        other.read(late, 0.75)
    other.update(0.75)
    assert other.peer_load(B) == (0, 0, 0, 0, 0)
    assert other.choose(PROMPT) == (url, 8)
    assert other.peers(0.75)[0]["gaps"] == 1


def test_own_frames_are_not_heard():
    one = router(1)
    for frame in one.write_frames(0.0):
        one.read(frame, 0.0)
    assert one.peers(0.0) == []
    assert one.counts()["frames_repeated"] == 1


def test_a_forged_frame_is_counted_and_changes_nothing():
    one, other = router(1, key="secret"), router(2, key="secret")
    forged = peer_frame.empty(router=9, full=True, names=[(0, 0, A)], loads=[(0, LOAD)])
    for key in (b"", b"wrong"):
        with pytest.raises(PermissionError):
            other.read(peer_frame.write(forged, key), 0.0)
    with pytest.raises(ValueError, match="begin like no frame"):
        other.read(b"VRP1", 0.0)
    other.update(0.0)
    assert other.peers(0.0) == []
    assert other.peer_load(A) == (0, 0, 0, 0, 0)
    counts = other.counts()
    assert (counts["frames_refused"], counts["frames_malformed"]) == (2, 1)
    tell(one, other, now=0.0)
    assert [peer["router"] for peer in other.peers(0.0)] == [1]


def test_a_peer_is_live_then_late_then_gone():
    one, other = router(1), router(2)
    one.set_load(A, LOAD)
    tell(one, other, now=0.0)
    loads = {}
    for now in (2.0, 4.0, 9.9, 10.1):
        other.update(now)
        loads[now] = (other.peers(now)[0]["state"], other.peer_load(A)[0])
    assert loads == {2.0: ("live", 3), 4.0: ("late", 2), 9.9: ("late", 0), 10.1: ("gone", 0)}
    other.update(700.0)
    assert other.peers(700.0) == []


def test_a_router_that_ends_says_so():
    one, other = router(1), router(2)
    one.set_load(A, LOAD)
    tell(one, other, now=0.0)
    one.tell_topic(b"last word")
    for frame in one.write_bye(0.1):
        other.read(frame, 0.1)
    assert other.heard_topic == [(1, 0.0, b"last word")]
    other.update(0.1)
    assert other.peers(0.1)[0]["state"] == "gone"
    assert other.peer_load(A) == (0, 0, 0, 0, 0)


def test_more_than_a_frame_holds_takes_several():
    workers = [f"http://worker-{number}.{'x' * 200}:8000" for number in range(4000)]
    one, other = router(1, workers=workers), router(2, workers=workers)
    for worker in workers[::1000]:
        one.set_load(worker, LOAD)
    for now in (0.0, 2.0, 4.0):
        frames = one.write_frames(now)
        assert len(frames) > 1
        assert all(len(frame) < 1 << 20 for frame in frames)
        for frame in frames:
            other.read(frame, now)
    other.update(4.0)
    assert other.peers(4.0)[0]["names"] == 4000
    assert sum(other.peer_load(worker)[0] for worker in workers) == 12


def test_names_loads_and_decisions_of_a_large_fleet_take_several_frames_together():
    """As after an outage: names and decisions each nearly fill a frame by themselves."""
    workers = [f"http://worker-{number:04}.{'x' * 80}:8000" for number in range(4096)]
    one, other = router(1, workers=workers, stride_tokens=1, max_blocks=10_000), router(2, workers=workers)
    prompt = hash_blocks([1] * 4096, 1).tolist()
    for _ in range(20):
        one.choose(prompt)
    for worker in workers:
        one.set_load(worker, (2**40,) * 5)
    frames = one.write_frames(0.0)
    assert all(len(frame) <= 1 << 20 for frame in frames)
    told = [read(frame) for frame in frames]
    assert [sum(len(frame[part]) for frame in told) for part in ("names", "loads", "decisions")] == [
        4096,
        4096,
        20,
    ]
    assert [frame["full"] for frame in told] == [True] + [False] * (len(told) - 1)
    for frame in frames:
        other.read(frame, 0.0)
    assert other.peers(0.0)[0]["names"] == 4096


def test_a_long_prompt_is_told_up_to_a_limit():
    prompt = hash_blocks([1] * 5000, 1).tolist()
    one, other = (router(number, [A], stride_tokens=1, max_blocks=10_000) for number in (1, 2))
    tell(one, other, now=0.0)
    one.choose(prompt)
    tell(one, other, now=0.25)
    assert other.choose(prompt) == (A, 4096)


@pytest.mark.parametrize("tokens", [0, 12, 15, 2**32 - 1])
def test_a_prompt_is_no_longer_than_its_strides_tell(tokens):
    one = router(1, [A], stride_tokens=4, max_blocks=100_000)
    strides = hash_blocks([1] * 3, 1).tolist()
    told = peer_frame.empty(
        router=9,
        fingerprint=one.fingerprint,
        names=[(0, 0, A)],
        decisions=[(0, tokens, 0, strides)],
        full=True,
    )
    one.read(peer_frame.write(told), 0.0)
    assert one.counts()["decisions_applied"] == 1
    assert one.strides <= 4


def test_beyond_the_budget_of_a_tick_the_oldest_decisions_are_dropped():
    one = router(1, [A], stride_tokens=1, max_tick_bytes=100)
    for first in range(3):
        one.choose(hash_blocks([first] * 8, 1).tolist())
    (frame,) = map(read, one.write_frames(0.0))
    assert [strides for *_, strides in frame["decisions"]] == [hash_blocks([2] * 8, 1).tolist()]
    assert one.counts()["decisions_over_budget"] == 2


def test_a_router_without_its_peers_is_alone_after_five_seconds_and_assumes_holders():
    one, other = router(1), router(2)
    for each in (one, other):
        each.set_connected(False, 0.0)
        each.update(4.9)
        assert not each.alone
        each.update(5.0)
        assert each.alone
    prompts = [hash_blocks([first] * 20, 1).tolist() for first in range(30)]
    # Without a word they send equal prompts to one worker, and both workers get some.
    chosen = [one.choose(prompt)[0] for prompt in prompts]
    assert [other.choose(prompt)[0] for prompt in prompts] == chosen
    assert set(chosen) == {A, B}
    one.set_connected(True, 6.0)
    one.update(6.0)
    assert not one.alone


def test_a_policy_that_matches_no_blocks_tells_its_loads():
    one, other = router(1, policy="least_load"), router(2)
    one.set_load(A, LOAD)
    tell(one, other, now=0.0)
    other.update(0.0)
    assert other.peer_load(A) == LOAD


def test_what_was_seen_of_each_other_is_told():
    one, other = router(1), router(2)
    tell(one, other, now=0.0)
    tell(other, one, now=0.1)
    assert one.peers(0.1)[0]["seen"] == 1
