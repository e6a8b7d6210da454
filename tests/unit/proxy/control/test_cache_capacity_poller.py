"""cpp/proxy/control/cache_capacity_poller.h:
the index keeps as many blocks of a worker as its cache holds, if it says.
"""

import contextlib
import json
import random

import pytest

from tests.fakes.wire import eventually, response, wait_until_logged
from vllm_router.testing import SimulatedWorker

CHAT = "/v1/chat/completions"


class Engine:
    """A worker with this page of metrics; everything else is hello."""

    def __init__(self, page):
        self.page = page
        self.asked = 0

    def __call__(self, connection, message):
        if message.target == "/metrics":
            self.asked += 1
            connection.send(response(404, b"") if self.page is None else response(200, self.page.encode()))
        else:
            connection.send(response(200, b"hello"))


def vllm(blocks, block_size=16, engine=0):
    labels = f'block_size="{block_size}",engine="{engine}",num_gpu_blocks="{blocks}"'
    return f"# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{{{labels}}} 1.0\n"


def capacities(harness, router):
    stats = json.loads(harness.client(router).ask("GET", "/admin/index/stats").body)
    return {worker["url"]: worker["max_blocks"] for worker in stats["workers"]}


def wait_for(harness, router, expected):
    eventually(lambda: capacities(harness, router) == expected, f"never {expected}")


@pytest.mark.parametrize("policy", ["auto", "vllm_cache_aware"])
def test_each_worker_has_the_capacity_that_it_tells(harness, policy):
    large, small = harness.worker(Engine(vllm(5000))), harness.worker(Engine(vllm(200, block_size=32)))
    sglang = harness.worker(Engine("sglang:max_total_num_tokens 48000.0\n"))
    silent, without = harness.worker(Engine(None)), harness.worker(Engine("python_info 1\n"))
    router = harness.router(
        large, small, sglang, silent, without, policy=policy, routing={"max_blocks_per_worker": 777}
    )
    expected = {large.url: 5000, small.url: 400, sglang.url: 3000, silent.url: 777, without.url: 777}
    wait_for(harness, router, expected)
    shown = [
        (line.split('"')[1], float(line.rsplit(" ", 1)[1]))
        for line in router.server.metrics_text().splitlines()
        if line.startswith("vllm_router_index_worker_max_blocks{")
    ]
    assert dict(shown) == expected


def test_the_capacity_is_in_the_router_s_own_blocks(harness):
    worker = harness.worker(Engine(vllm(100, block_size=16)))
    router = harness.router(worker, policy="auto", routing={"block_size": 64})
    wait_for(harness, router, {worker.url: 25})


def test_the_capacity_holds(harness):
    worker = harness.worker(Engine(vllm(10)))
    router = harness.router(worker, policy="auto")
    wait_for(harness, router, {worker.url: 10})
    client = harness.client(router)
    for letter in "abc":
        client.ask(
            "POST", CHAT, body=json.dumps({"messages": [{"role": "user", "content": letter * 900}]}).encode()
        )
    stats = json.loads(client.ask("GET", "/admin/index/stats").body)
    assert stats["workers"][0]["blocks"] == 10
    assert stats["evicted_blocks"] > 0


def remembered(router):
    for line in router.server.metrics_text().splitlines():
        if line.startswith("vllm_router_tree_size{"):
            return float(line.rsplit(" ", 1)[1])
    raise AssertionError("no size of the tree")


def test_cache_aware_remembers_what_the_cache_holds(harness):
    engine = Engine(vllm(100))  # 1,600 tokens, so 6,400 bytes
    router = harness.router(harness.worker(engine), policy="cache_aware")
    client = harness.client(router)

    def ask(number):
        content = f"{number:04}" * 250
        body = json.dumps({"messages": [{"role": "user", "content": content}]}).encode()
        assert client.ask("POST", CHAT, body=body).status == 200

    numbers = iter(range(10**6))

    def bounded():
        for _ in range(10):
            ask(next(numbers))
        return 5000 <= remembered(router) <= 6400

    eventually(bounded, "it remembered more than the cache holds")


@pytest.mark.parametrize("policy", ["auto", "vllm_cache_aware"])
def test_the_capacity_follows_the_tokens_that_responses_tell(harness, policy):
    """mending row 34: four bytes a token were believed, so of other text up to twice the cache."""
    usage = json.dumps({"usage": {"prompt_tokens": 1000, "completion_tokens": 1}}).encode()

    def answer(connection, message):
        page = vllm(1000).encode()
        connection.send(response(200, page if message.target == "/metrics" else usage))

    worker = harness.worker(answer)
    router = harness.router(worker, policy=policy)
    wait_for(harness, router, {worker.url: 1000})
    client = harness.client(router)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * 2000}]}).encode()

    def learned():
        for _ in range(20):
            assert client.ask("POST", CHAT, body=body).status == 200
        return 500 <= capacities(harness, router)[worker.url] <= 550

    eventually(learned, "the capacity never became that of two bytes a token")
    line = next(
        line for line in router.server.metrics_text().splitlines() if "worker_bytes_per_token{" in line
    )
    assert 2 <= float(line.rsplit(" ", 1)[1]) <= 2.2


def test_ranks_of_a_host_have_their_own_and_are_asked_together(harness):
    engine = Engine(vllm(100, engine=0) + vllm(300, engine=1))
    worker = harness.worker(engine)
    router = harness.router(f"{worker.url}@0", f"{worker.url}@1", worker.url, policy="auto")
    wait_for(harness, router, {f"{worker.url}@0": 100, f"{worker.url}@1": 300, worker.url: 400})
    assert engine.asked == 1


def test_a_worker_that_joins_is_asked(harness):
    first, second = harness.worker(Engine(vllm(100))), harness.worker(Engine(vllm(200)))
    router = harness.router(first, policy="auto")
    wait_for(harness, router, {first.url: 100})
    router.core.add_worker(second.url)
    wait_for(harness, router, {first.url: 100, second.url: 200})


def test_a_worker_that_comes_back_is_asked_again(harness):
    engine, later = Engine(vllm(100)), Engine(vllm(200))
    worker, other = harness.worker(engine), harness.worker(later)
    router = harness.router(worker, policy="auto")
    wait_for(harness, router, {worker.url: 100})
    engine.page = vllm(300)
    router.core.set_healthy(worker.url, False)
    router.core.add_worker(other.url)
    eventually(lambda: later.asked == 1)  # so the fleet was looked at meanwhile
    assert engine.asked == 1
    router.core.set_healthy(worker.url, True)
    wait_for(harness, router, {worker.url: 300, other.url: 200})


def test_nobody_is_asked_under_a_policy_without_an_index(harness):
    engine = Engine(vllm(100))
    router = harness.router(harness.worker(engine), policy="least_load")
    client = harness.client(router)
    client.ask("POST", CHAT, body=b"{}")
    router.shutdown()
    router.must_end()
    assert engine.asked == 0


# ---- --block-size auto


def block_sizes(harness, router):
    stats = json.loads(harness.client(router).ask("GET", "/admin/index/stats").body)
    return {worker["url"]: worker["block_size"] for worker in stats["workers"]}


def wait_for_sizes(harness, router, expected):
    eventually(lambda: block_sizes(harness, router) == expected, f"never {expected}")


@pytest.mark.parametrize("policy", ["auto", "vllm_cache_aware"])
def test_each_worker_has_the_block_size_that_it_tells(harness, policy):
    """mending row 31: a fleet of several sizes needed a router for each."""
    pages = {
        16: vllm(5000),
        64: vllm(1000, block_size=64),
        1: "sglang:page_size 1.0\nsglang:max_total_num_tokens 48000.0\n",
        32: 'sglang:cache_config_info{page_size="32"} 1.0\nsglang:max_total_num_tokens 32000.0\n',
    }
    workers = {size: harness.worker(Engine(page)) for size, page in pages.items()}
    silent = harness.worker(Engine(None))
    router = harness.router(
        *workers.values(), silent, policy=policy, routing={"block_size": "auto", "max_blocks_per_worker": 777}
    )
    wait_for_sizes(harness, router, {worker.url: size for size, worker in workers.items()} | {silent.url: 16})
    expected = {16: 5000, 64: 4000, 1: 3000, 32: 2000}
    wait_for(harness, router, {workers[size].url: expected[size] for size in workers} | {silent.url: 777})


@pytest.mark.parametrize("size", ["0", "-32", "NaN", "1e3", str(10**12), str(2**64), "None"])
def test_a_block_size_that_no_engine_has_is_not_believed(harness, size):
    bad, good = (
        harness.worker(Engine(vllm(100, block_size=size))),
        harness.worker(Engine(vllm(100, block_size=32))),
    )
    router = harness.router(bad, good, policy="auto", routing={"block_size": "auto"})
    wait_for_sizes(harness, router, {bad.url: 16, good.url: 32})
    assert capacities(harness, router)[bad.url] == 100_000


def test_a_worker_that_comes_back_with_another_block_size_holds_nothing(harness):
    engine = Engine(vllm(1000, block_size=32))
    worker = harness.worker(engine)
    router = harness.router(worker, policy="auto", routing={"block_size": "auto"})
    wait_for_sizes(harness, router, {worker.url: 32})
    body = json.dumps({"prompt": "a" * 3000}).encode()
    assert harness.client(router).ask("POST", "/v1/completions", body=body).status == 200

    def blocks():
        stats = json.loads(harness.client(router).ask("GET", "/admin/index/stats").body)
        return stats["workers"][0]["blocks"]

    assert blocks() > 40
    engine.page = vllm(500, block_size=64)
    later = Engine(vllm(100))
    other = harness.worker(later)
    router.core.set_healthy(worker.url, False)
    router.core.add_worker(other.url)
    eventually(lambda: later.asked == 1)  # so the fleet was looked at meanwhile
    router.core.set_healthy(worker.url, True)
    wait_for_sizes(harness, router, {worker.url: 64, other.url: 16})
    assert blocks() == 0


def test_what_is_believed_of_mixed_workers_is_what_they_report(harness):
    """Simulated engines with blocks of 16, 32, 64 and 128: the index matched what they say was cached."""
    sizes = (16, 32, 64, 128)
    with contextlib.ExitStack() as stack:
        fleet = [
            stack.enter_context(SimulatedWorker(engine="instant", cache_blocks=4096, block_tokens=size))
            for size in sizes
        ]
        router = harness.router(
            *(worker.url for worker in fleet), policy="auto", routing={"block_size": "auto"}
        )
        wait_for_sizes(harness, router, {worker.url: size for worker, size in zip(fleet, sizes, strict=True)})
        client = harness.client(router)
        dice = random.Random(31)
        prompts: list[list[int]] = []
        for _ in range(80):
            beginning = dice.choice(prompts) if prompts and dice.random() < 0.7 else []
            prompts.append(
                beginning[: dice.randrange(600)]
                + [dice.randrange(1, 50_000) for _ in range(dice.randrange(1, 300))]
            )
            body = json.dumps({"prompt": prompts[-1], "max_tokens": 1}).encode()
            eventually(lambda: not any(router.all_loads()))
            assert client.ask("POST", "/v1/completions", body=body).status == 200
        cached = sum(worker.stats()["cached_tokens"] for worker in fleet)
        stats = json.loads(client.ask("GET", "/admin/index/stats").body)
        assert cached > 0
        assert stats["matched_blocks"] * 16 == cached


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (
            None,
            "GET /metrics: status 404), so guesses hold: blocks of 16 tokens (--block-size), at most 777 of",
        ),
        (
            "llamacpp:requests_processing 1\nllamacpp:requests_deferred 0\n",
            "neither vLLM's nor SGLang's metrics",
        ),
    ],
)
def test_what_is_guessed_of_an_engine_is_said_once(harness, capfd, page, words):
    """Row 59: an engine that is neither vLLM nor SGLang was served with silent guesses."""
    worker, vllms = harness.worker(Engine(page)), harness.worker(Engine(vllm(5000)))
    router = harness.router(worker, vllms, policy="auto", routing={"max_blocks_per_worker": 777})
    wait_until_logged(capfd, words)
    wait_for(harness, router, {worker.url: 777, vllms.url: 5000})
    said = capfd.readouterr().err
    assert said.count("does not tell of its KV cache") == 1
    assert f"worker {worker.url} does not tell" in said
    assert ("its load may be what this router sends it only" in said) == (page is None)
