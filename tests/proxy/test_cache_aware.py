"""cache_aware over HTTP, before simulated workers with caches: chats stay, load counts, nobody is pinned."""

import contextlib
import json
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.prometheus_text import parse
from tests.fakes.wire import eventually
from vllm_router.testing import SimulatedWorker

CHAT = "/v1/chat/completions"
WORDS = ["after", "again", "because", "before", "could", "every", "found", "great", "house", "large"]
QUICK = {"engine": "instant", "cache_blocks": 1 << 20}


@contextlib.contextmanager
def workers(*options: dict[str, Any]) -> Iterator[list[SimulatedWorker]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(SimulatedWorker(**QUICK | each)) for each in options]


class User:
    """One person with one chat after the other."""

    def __init__(self, number: int, client: Any, system: str) -> None:
        self.dice = random.Random(number)
        self.client = client
        self.number = number
        self.system = system
        self.visited: list[str] = []
        self.begin()

    def begin(self) -> None:
        self.messages = [{"role": "system", "content": self.system}]

    def say(self, words: int = 60) -> None:
        question = f"I am {self.number}: " + " ".join(self.dice.choices(WORDS, k=words))
        self.messages.append({"role": "user", "content": question})
        body = json.dumps({"messages": self.messages, "max_tokens": 8}).encode()
        answer = self.client.ask("POST", CHAT, body=body)
        assert answer.status == 200
        self.visited.append(answer.get("x-vllm-router-worker"))
        self.messages.append(json.loads(answer.body)["choices"][0]["message"])


def cached(fleet: list[SimulatedWorker]) -> int:
    return sum(worker.stats()["cached_tokens"] for worker in fleet)


SYSTEM = "You are a helpful assistant who answers in few words and never guesses. " * 16


@pytest.mark.parametrize("system", ["of each user", "of all"])
def test_six_turns_of_twenty_users_stay_where_their_caches_are(harness, system):
    def talk(fleet: list[SimulatedWorker]) -> list[User]:
        router = harness.router(*(w.url for w in fleet), policy="cache_aware", decision_headers=True)
        client = harness.client(router)
        users = [
            User(i, client, SYSTEM + (f"This is {i}." if system == "of each user" else "")) for i in range(20)
        ]
        for turn in range(6):
            for user in random.Random(turn).sample(users, 20):
                # One at a time, so that load is even.
                eventually(lambda: not any(router.all_loads()))
                user.say()
        return users

    with workers({}, {}, {}, {}) as four, workers({}) as one:
        users = talk(four)
        for user in users:
            assert len(set(user.visited)) == 1, user.visited
        homes = [user.visited[0] for user in users]
        assert max(map(homes.count, homes)) <= 1.5 * 20 / 4
        talk(one)
        # What one cache that never forgets would have saved.
        assert cached(four) >= 0.9 * cached(one) > 0
        assert sum(w.stats()["prompt_tokens"] for w in four) == one[0].stats()["prompt_tokens"]


def in_threads(users: list[User], live: Any) -> None:
    threads = [threading.Thread(target=live, args=(user,)) for user in users]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_slow_worker_gets_fewer_requests(harness):
    with workers({"step_ms": 15}, {"step_ms": 5}, {"step_ms": 5}, {"step_ms": 5}) as fleet:
        router = harness.router(
            *(w.url for w in fleet),
            policy="cache_aware",
            decision_headers=True,
            routing={"balance_abs_threshold": 2},
        )
        users = [User(i, harness.client(router), f"You belong to {i}. ") for i in range(16)]

        def live(user: User) -> None:
            for _ in range(4):
                user.begin()
                for _ in range(3):
                    user.say()

        in_threads(users, live)
        slow, *others = (worker.stats()["requests"] for worker in fleet)
        assert slow + sum(others) == 16 * 4 * 3
        assert slow < 0.75 * sum(others) / 3


def test_a_system_prompt_that_all_share_pins_nobody(harness):
    with workers({}, {}, {}, {}) as fleet:
        router = harness.router(*(w.url for w in fleet), policy="cache_aware", decision_headers=True)
        users = [User(i, harness.client(router), SYSTEM * 4) for i in range(8)]

        def live(user: User) -> None:
            for _ in range(10):
                user.begin()
                user.say(words=12)

        in_threads(users, live)
        requests = [worker.stats()["requests"] for worker in fleet]
        assert sum(requests) == 80
        assert max(requests) <= 1.5 * 80 / 4
        # And each computed the prompt that all share about once.
        prompt, saved = (sum(w.stats()[what] for w in fleet) for what in ("prompt_tokens", "cached_tokens"))
        assert saved > 0.8 * prompt


def test_what_workers_report_is_compared_with_what_was_predicted(harness):
    with workers({}, {}) as fleet:
        router = harness.router(
            *(w.url for w in fleet), policy="cache_aware", decision_headers=True, prometheus_port=0
        )
        user = User(1, harness.client(router), SYSTEM)
        for _ in range(4):
            user.say()
        eventually(lambda: router.core.stats()["cache_routing"]["predicted_tokens"] > 0)

        def page() -> dict[str, Any]:
            return parse(router.server.metrics_text())

        eventually(lambda: page()["vllm_router_predicted_cached_tokens_total"].value() > 1000)
        families = page()
        assert families["vllm_router_cache_hits_total"].value() == 3
        assert families["vllm_router_cache_misses_total"].value() == 1
        assert families["vllm_router_load_balancing_events_total"].value() == 0
        predicted = families["vllm_router_predicted_cached_tokens_total"].value()
        reported = families["vllm_router_reported_cached_tokens_total"].value()
        assert 0.5 * predicted < reported < 2 * predicted
        sizes = sorted(families["vllm_router_tree_size"].value(worker=w.url) for w in fleet)
        assert sizes[0] == 0 < sizes[1] == families["vllm_router_tree_distinct_bytes"].value()
        assert families["vllm_router_tree_max_bytes"].value() == 2**26


def test_a_request_that_is_tried_elsewhere_belongs_there(harness):
    with workers({}, {}) as fleet:
        router = harness.router(*(w.url for w in fleet), policy="cache_aware", decision_headers=True)
        user = User(1, harness.client(router), SYSTEM)
        user.say()
        first = user.visited[0]
        router.core.set_healthy(first, False)
        user.say()
        second = user.visited[1]
        assert second != first
        router.core.set_healthy(first, True)
        user.say()
        assert user.visited[2] == second
