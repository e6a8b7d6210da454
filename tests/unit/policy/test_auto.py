"""cpp/policy/auto.h: its memory, its edges. Its cost: test_auto_cost.py; random stories: tests/property."""

import pytest

from tests.rows import for_each_row
from vllm_router import Router
from vllm_router import _core_testing as testing

A, B, C = (f"http://{name}:8000" for name in "abc")
PROMPT = list(range(1, 257))  # 256 blocks of 16 tokens: 4,096
STEP, REQUEST, CONTEXT, TOKEN_S = 150, 0.625, 0.0009125, 80e-6


def fleet(**options) -> testing.PolicyHarness:
    policy = testing.PolicyHarness("auto", seed=1, **options)
    for url in (A, B, C):
        policy.add(url)
    return policy


def hold(policy: testing.PolicyHarness, position: int, prompt: list[int], **key) -> None:
    """The worker at this position was sent the prompt."""
    others = [i for i in range(3) if i != position]
    policy.choose_blocks(prompt, others, prompt_tokens=16 * len(prompt), **key)


def test_many_requests_move_on_by_themselves():
    policy = fleet()
    hold(policy, 0, PROMPT)
    policy.set_load(A, 120, waiting=20, prefill=80_000, context=540_000)
    policy.set_load(B, 3, context=6000)
    policy.set_load(C, 120, context=540_000)
    assert policy.choose_blocks(PROMPT, prompt_tokens=4136)[:3] == (1, "lowest_cost", 0)


def test_a_holder_keeps_its_chat_while_one_request_is_under_way_there():
    policy = fleet()
    hold(policy, 0, PROMPT[:60])
    policy.set_load(A, 1, waiting=1, prefill=160, context=1000)
    assert policy.choose_blocks(PROMPT[:66], prompt_tokens=16 * 66)[0] == 0


def test_chats_that_nobody_holds_are_spread_by_what_was_sent():
    policy = fleet()
    chosen = [policy.choose_blocks([100 * i + 1, 100 * i + 2], prompt_tokens=40)[0] for i in range(30)]
    assert [chosen.count(position) for position in range(3)] == [10, 10, 10]


def test_a_worker_that_joins_gets_the_next_chat_that_nobody_holds():
    policy = fleet()
    for i in range(30):
        policy.choose_blocks([100 * i + 1, 100 * i + 2], prompt_tokens=40)
    policy.add("http://d:8000")
    assert policy.choose_blocks([9001, 9002], prompt_tokens=40)[0] == 3
    # A chat that is held elsewhere stays where it is.
    assert policy.choose_blocks([1, 2], prompt_tokens=40)[2] == 2


def test_an_open_request_of_the_same_prefix_makes_it_shared_until_it_ends():
    """The holder's queue is worth a copy only where others use the prefix now."""

    def second(ends: bool) -> int:
        policy = fleet()
        now = 100.0
        for i in range(120):  # a rate at which computing delays others
            policy.choose_blocks([100 * i + 1001, 100 * i + 1002], prompt_tokens=2000, now=now + 0.05 * i)
        hold(policy, 0, PROMPT, now=107)
        hold(policy, 0, PROMPT, now=107)
        opened = 121  # the second of them found the prefix
        if ends:
            policy.serve(opened, now=107.2, output_tokens=1)
        policy.set_load(A, 6, waiting=6, prefill=6200, context=26_000)
        return policy.choose_blocks(PROMPT, prompt_tokens=4100, now=107)[2]

    assert second(ends=True) == 256
    assert second(ends=False) == 0


def test_however_a_request_ends_it_shares_its_prefix_no_longer():
    ends = ["finished", "client_gone", "worker_failed", "not_sent"]

    def costs(ended: int) -> list[float]:
        policy = fleet()
        hold(policy, 0, PROMPT, now=1)
        for i in range(len(ends)):
            policy.choose_blocks(PROMPT, [1, 2], prompt_tokens=4100, now=1.1 + 0.1 * i)
        for number, end in list(enumerate(ends, start=1))[:ended]:
            # What it was sent stays in the index, as of a request that the engine computed.
            policy.end_request(number, end, 200)
        return policy.costs(PROMPT, prompt_tokens=4100, now=2)

    moved = [costs(ended)[1] for ended in range(len(ends) + 1)]
    assert moved == sorted(set(moved))
    policy = fleet()
    hold(policy, 0, PROMPT, now=1)
    for i in range(len(ends)):
        policy.choose_blocks(PROMPT, [1, 2], prompt_tokens=4100, now=1.1 + 0.1 * i)
        policy.end_request(1 + i, "finished", 200)
    assert policy.costs(PROMPT, prompt_tokens=4100, now=2)[1] == moved[-1]


class Conversations:
    """Workers that take so many times as long as the constants say, and conversations among them."""

    def __init__(self, workers: int) -> None:
        self.policy = testing.PolicyHarness("auto", seed=1)
        for i in range(workers):
            self.policy.add(f"http://w{i}:8000")
        self.workers = workers
        self.now = 10.0

    def serve(self, prompt: list[int], tokens: int, output: int, times: float, tried=()) -> int:
        """One request from its choice to its end; its worker."""
        chosen = self.policy.choose_blocks(prompt, list(tried), prompt_tokens=tokens, now=self.now)
        step = (STEP + REQUEST + CONTEXT * tokens) * TOKEN_S
        first = self.now + times * ((tokens - 16 * chosen[2]) * TOKEN_S + 1.5 * step)
        end = first + times * step * (output - 1)
        self.policy.serve(self.policy.asked - 1, first_token=first, now=end, output_tokens=output)
        self.now = end
        return chosen[0]

    def measure_all(self, requests: int) -> None:
        """Each worker serves so many requests that share nothing, in the expected time."""
        for i in range(requests * self.workers):
            others = [other for other in range(self.workers) if other != i % self.workers]
            self.serve([10**9 + i], 500, 50, 1.0, others)

    def converse(self, number: int, kind: tuple[int, int, int, float], times, turns: int) -> list[int]:
        """The worker of each turn; `kind`: first prompt, what users add, responses; pause in seconds."""
        tokens, more, output, pause = kind
        chosen = []
        for turn in range(turns):
            prompt = [number * 10**6 + i for i in range(1, tokens // 16 + 1)]
            chosen.append(self.serve(prompt, tokens, output, times(turn)))
            self.now += pause
            tokens += more + output
        return chosen


KINDS = {
    "chat": (600, 60, 150, 5.0),
    "agent": (12_000, 600, 80, 1.0),
    "large_agent": (30_000, 2000, 200, 3.0),
    "long_responses": (800, 50, 800, 4.0),
}
# How many times the expected time the worker takes, by turn.
PHASES = {
    "steady": lambda _: 1.0,
    "three_times": lambda turn: 3.0 if turn >= 4 else 1.0,
    "ten_times_for_two_turns": lambda turn: 10.0 if turn in (2, 3) else 1.0,
    "ten_times": lambda turn: 10.0 if turn >= 3 else 1.0,
}


@for_each_row("workers", [2, 3, 8, 64])
@for_each_row("phase", PHASES)
@for_each_row("kind", KINDS)
def test_a_conversation_that_is_alone_stays_on_its_worker(kind, phase, workers):
    assert len(set(Conversations(workers).converse(1, KINDS[kind], PHASES[phase], turns=30))) == 1


@for_each_row("workers", [2, 3, 8, 64])
@for_each_row("kind", KINDS)
def test_conversations_that_are_few_stay_on_their_workers(kind, workers):
    fleet = Conversations(workers)
    tokens, more, output, pause = KINDS[kind]
    chosen: list[set[int]] = [set() for _ in range(2)]
    for _ in range(30):
        for number, places in enumerate(chosen, start=1):
            prompt = [number * 10**6 + i for i in range(1, tokens // 16 + 1)]
            places.add(fleet.serve(prompt, tokens, output, 1.0))
            fleet.now += pause / 2
        tokens += more + output
    assert [len(places) for places in chosen] == [1, 1]
    assert chosen[0] != chosen[1]


@pytest.mark.parametrize("phase", ["three_times", "ten_times_for_two_turns"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_slow_phase_of_all_moves_no_conversation_to_workers_that_were_measured_before(kind, phase):
    fleet = Conversations(3)
    fleet.measure_all(20)
    assert len(set(fleet.converse(1, KINDS[kind], PHASES[phase], turns=12))) == 1


def test_the_only_worker_that_was_measured_is_as_fast_as_the_others():
    def costs(later: float) -> list[float]:
        fleet = Conversations(3)
        for i in range(20):
            fleet.now = 10.0 * (i + 1)
            fleet.serve([7000 + i], 500, 50, 1.0 if i < 5 else later, tried=[1, 2])
        return fleet.policy.costs([], prompt_tokens=4000, now=300.0)

    assert costs(later=5.0) == costs(later=1.0)


def test_a_slow_worker_among_others_that_were_measured_gets_fewer_conversations():
    """A third of the speed, and half of what the others get, or less."""
    fleet = Conversations(3)
    counts = [0, 0, 0]
    for i in range(300):
        prompt = [20_000 + i]
        chosen = fleet.policy.choose_blocks(prompt, prompt_tokens=600, now=fleet.now)[0]
        times = 3.0 if chosen == 2 else 1.0
        first = fleet.now + times * (600 + 1.5 * STEP) * TOKEN_S
        end = first + times * STEP * TOKEN_S * 49
        fleet.policy.serve(fleet.policy.asked - 1, first_token=first, now=end, output_tokens=50)
        fleet.now = end
        counts[chosen] += i >= 100
    assert counts[2] < 0.6 * min(counts[:2])


def slow_down(policy: testing.PolicyHarness, seconds: list[float], requests: int = 60, **end) -> None:
    """Each worker in turn serves requests of 1,600 tokens: so long the first token takes, and all others."""
    now = 10.0
    for i in range(requests):
        position = i % 3
        others = [other for other in range(3) if other != position]
        policy.choose_blocks([7000 + i], others, prompt_tokens=1600, now=now)
        first = now + seconds[position]
        last = first + seconds[position]
        policy.serve(policy.asked - 1, first_token=first, now=last, **{"output_tokens": 100, **end})
        now = last + 0.01


def test_a_worker_whose_times_are_long_costs_more():
    policy, equal = fleet(), fleet()
    slow_down(policy, [0.2, 0.2, 1.0])
    slow_down(equal, [0.5, 0.5, 0.5])
    costs = policy.costs([1, 2], prompt_tokens=9000, now=99)
    # Five times as long, and what is within 0.15 of the mean is noise. What was sent counts by its time, too.
    assert costs[2] / costs[0] > 2.5
    assert costs[1] == pytest.approx(costs[0], rel=0.1)
    costs = equal.costs([1, 2], prompt_tokens=9000, now=99)
    assert max(costs) < 1.1 * min(costs)


@pytest.mark.parametrize(
    "end",
    [
        {"status": 500},
        {"end": "worker_failed"},
        {"end": "client_gone"},
        {"end": "not_sent"},
        {"output_tokens": 3},
        {"output_tokens": None},
    ],
    ids=["status_500", "worker_failed", "client_gone", "not_sent", "three_tokens", "unknown_tokens"],
)
def test_fast_errors_and_short_responses_teach_nothing(end):
    costs = []
    for third in (0.01, 0.0001):
        policy = fleet()
        slow_down(policy, [0.01, 0.01, third], **end)
        costs.append(policy.costs([1, 2], prompt_tokens=9000, now=99))
    # Arrivals follow from the ends, so they are a little closer; no worker is told from another.
    fast = costs[1]
    assert max(fast) < 1.1 * min(fast)


def test_told_weights_take_the_place_of_what_is_learnt():
    policy = testing.PolicyHarness("auto", seed=1)
    for url, weight in ((A, 1.0), (B, 1.0), (C, 0.5)):
        policy.add(url, weight)
    slow_down(policy, [0.2, 0.2, 0.4])
    costs = policy.costs([1, 2], prompt_tokens=4000, now=99)
    # Half the weight is twice the time of what waits, and of what was sent; the times themselves add nothing.
    assert costs[2] / costs[0] == pytest.approx(2.0, abs=0.15)


def test_a_huge_prompt_moves_no_mean_by_much():
    policy, usual = fleet(), fleet()
    for i in range(200):
        for each in (policy, usual):
            each.choose_blocks([100 * i + 1, 100 * i + 2], prompt_tokens=500, now=10 + 0.1 * i)
    policy.choose_blocks([90_001], prompt_tokens=1_000_000, now=30)
    usual.choose_blocks([90_001], prompt_tokens=500, now=30)
    for each in (policy, usual):  # neither counts as load any more
        for url in (A, B, C):
            each.set_load(url, 2, waiting=1, prefill=500, context=1000)
    for tokens in (100, 4000):
        costs = [each.costs([1, 2], prompt_tokens=tokens, now=31) for each in (policy, usual)]
        for huge, without in zip(*costs, strict=True):
            assert huge == pytest.approx(without, rel=0.35)


def test_a_dry_run_changes_nothing_and_tells_what_would_be_chosen():
    def story(dry: int) -> list[object]:
        policy = fleet()
        said: list[object] = []
        for i in range(40):
            prompt = [100 * (i % 7) + j for j in range(1, 5)]
            told = [
                policy.choose_blocks(prompt, prompt_tokens=70, now=1 + 0.1 * i, dry_run=True)
                for _ in range(dry)
            ]
            answer = policy.choose_blocks(prompt, prompt_tokens=70, now=1 + 0.1 * i)
            assert all(each == answer for each in told)
            said.append(answer)
            said.append(policy.costs(prompt, prompt_tokens=70, now=1 + 0.1 * i))
        return said

    assert story(dry=0) == story(dry=3)


def test_equal_inputs_give_equal_decisions():
    def story() -> list[object]:
        policy = fleet()
        slow_down(policy, [0.2, 0.25, 0.3], requests=30)
        return [policy.choose_blocks([i, i + 1], prompt_tokens=50, now=50 + i) for i in range(50)]

    assert story() == story()


def test_the_only_holder_is_taken_to_have_its_last_response():
    def cost_there(cached_tokens: int) -> float:
        policy = fleet()
        for i in range(40):
            prompt = [1000 * i + j for j in range(1, 9)]
            policy.choose_blocks(prompt, prompt_tokens=130, now=1 + i)
            policy.serve(policy.asked - 1, now=1.2 + i, output_tokens=48, cached_tokens=0)
            policy.choose_blocks(prompt, prompt_tokens=190, now=1.5 + i)
            policy.serve(policy.asked - 1, now=1.7 + i, output_tokens=48, cached_tokens=cached_tokens)
        prompt = list(range(500_001, 500_009))
        hold(policy, 0, prompt, now=50)
        policy.serve(policy.asked - 1, now=51, output_tokens=48)
        return policy.costs(prompt, prompt_tokens=228, now=52)[0]

    # The blocks are 128 tokens: the engine had 48 more, or none.
    assert cost_there(176) < cost_there(128) - 40


def test_room_is_kept_for_a_mean_response():
    policy = fleet(max_blocks_per_worker=20)
    hold(policy, 0, PROMPT[:10])
    hold(policy, 0, [1000, 1001, 1002, 1003])
    assert policy.choose_blocks(PROMPT[:10], [1, 2], prompt_tokens=200)[2] == 10  # both fit
    policy.finish_blocks(0, 16 * 10)
    hold(policy, 0, [2000, 2001, 2002, 2003])  # 4 and 10 beside them
    assert policy.choose_blocks(PROMPT[:10], [1, 2], prompt_tokens=200)[2] == 6


def test_an_absurd_report_of_output_leaves_prompts_in_the_index():
    policy = fleet(max_blocks_per_worker=100_000)
    for _ in range(3):
        policy.finish_blocks(0, 2**63)
    hold(policy, 0, PROMPT)
    hold(policy, 0, PROMPT[:1])
    assert policy.choose_blocks(PROMPT, [1, 2], prompt_tokens=4100)[2] == 256


def test_who_gets_a_prompt_holds_it():
    policy = fleet()
    first = policy.choose_blocks(PROMPT, prompt_tokens=4100)
    assert first[1:] == ("lowest_cost", 0, 256)
    assert policy.choose_blocks(PROMPT, prompt_tokens=4100) == (first[0], "lowest_cost", 256, 256)


def test_equal_costs_go_by_least_load_and_then_by_lot():
    policy = fleet()
    assert {policy.choose_blocks([], prompt_tokens=100)[0] for _ in range(100)} == {0, 1, 2}


def test_without_a_prompt_the_least_work_decides():
    policy = fleet()
    policy.set_load(A, 1, context=10)
    policy.set_load(C, 2, context=10)
    assert policy.choose_blocks([], prompt_tokens=100, has_blocks=False) == (1, "fallback", 0, 0)


def test_nobody_eligible_and_one_eligible():
    policy = fleet()
    assert policy.choose_blocks(PROMPT, [0, 1, 2]) is None
    assert policy.choose_blocks(PROMPT, [0, 2])[0] == 1


@pytest.mark.parametrize("words", [{"prompt": "word " * 400}, {"token_ids": list(range(500))}])
def test_routers_offer_it(words):
    router = Router(policy="auto", worker_urls=[A, B, C], seed=1)
    first = router.select(**words)
    first.finish(status=200)
    second = router.select(**words)
    assert (first.reason, second.reason) == ("lowest_cost", "lowest_cost")
    assert second.worker_url == first.worker_url
    assert second.matched > 0
