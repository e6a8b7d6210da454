"""cpp/proxy/cache_sizes.h: the index keeps as many blocks of a worker as its cache holds, if it says."""

import json

import pytest

from tests.fakes.wire import eventually, response

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


def capacities(stage, router):
    stats = json.loads(stage.client(router).ask("GET", "/admin/index/stats").body)
    return {worker["url"]: worker["max_blocks"] for worker in stats["workers"]}


def wait_for(stage, router, expected):
    eventually(lambda: capacities(stage, router) == expected, f"never {expected}")


@pytest.mark.parametrize("policy", ["auto", "vllm_cache_aware"])
def test_each_worker_has_the_capacity_that_it_tells(stage, policy):
    large, small = stage.worker(Engine(vllm(5000))), stage.worker(Engine(vllm(200, block_size=32)))
    sglang = stage.worker(Engine("sglang:max_total_num_tokens 48000.0\n"))
    silent, without = stage.worker(Engine(None)), stage.worker(Engine("python_info 1\n"))
    router = stage.router(
        large, small, sglang, silent, without, policy=policy, routing={"max_blocks_per_worker": 777}
    )
    expected = {large.url: 5000, small.url: 400, sglang.url: 3000, silent.url: 777, without.url: 777}
    wait_for(stage, router, expected)
    shown = [
        (line.split('"')[1], float(line.rsplit(" ", 1)[1]))
        for line in router.server.metrics_text().splitlines()
        if line.startswith("vllm_router_index_worker_max_blocks{")
    ]
    assert dict(shown) == expected


def test_the_capacity_is_in_the_router_s_own_blocks(stage):
    worker = stage.worker(Engine(vllm(100, block_size=16)))
    router = stage.router(worker, policy="auto", routing={"block_size": 64})
    wait_for(stage, router, {worker.url: 25})


def test_the_capacity_holds(stage):
    worker = stage.worker(Engine(vllm(10)))
    router = stage.router(worker, policy="auto")
    wait_for(stage, router, {worker.url: 10})
    client = stage.client(router)
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


def test_cache_aware_remembers_what_the_cache_holds(stage):
    """mending row 36: it knew no capacity."""
    engine = Engine(vllm(100))  # 1,600 tokens, so 6,400 bytes
    router = stage.router(stage.worker(engine), policy="cache_aware")
    client = stage.client(router)

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
def test_the_capacity_follows_the_tokens_that_responses_tell(stage, policy):
    """mending row 34: four bytes a token were believed, so of other text up to twice the cache."""
    usage = json.dumps({"usage": {"prompt_tokens": 1000, "completion_tokens": 1}}).encode()

    def answer(connection, message):
        page = vllm(1000).encode()
        connection.send(response(200, page if message.target == "/metrics" else usage))

    worker = stage.worker(answer)
    router = stage.router(worker, policy=policy)
    wait_for(stage, router, {worker.url: 1000})
    client = stage.client(router)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * 2000}]}).encode()

    def learned():
        for _ in range(20):
            assert client.ask("POST", CHAT, body=body).status == 200
        return 500 <= capacities(stage, router)[worker.url] <= 550

    eventually(learned, "the capacity never became that of two bytes a token")
    line = next(
        line for line in router.server.metrics_text().splitlines() if "worker_bytes_per_token{" in line
    )
    assert 2 <= float(line.rsplit(" ", 1)[1]) <= 2.2


def test_ranks_of_a_host_have_their_own_and_are_asked_together(stage):
    engine = Engine(vllm(100, engine=0) + vllm(300, engine=1))
    worker = stage.worker(engine)
    router = stage.router(f"{worker.url}@0", f"{worker.url}@1", worker.url, policy="auto")
    wait_for(stage, router, {f"{worker.url}@0": 100, f"{worker.url}@1": 300, worker.url: 400})
    assert engine.asked == 1


def test_a_worker_that_joins_is_asked(stage):
    first, second = stage.worker(Engine(vllm(100))), stage.worker(Engine(vllm(200)))
    router = stage.router(first, policy="auto")
    wait_for(stage, router, {first.url: 100})
    router.core.add_worker(second.url)
    wait_for(stage, router, {first.url: 100, second.url: 200})


def test_a_worker_that_comes_back_is_asked_again(stage):
    engine, later = Engine(vllm(100)), Engine(vllm(200))
    worker, other = stage.worker(engine), stage.worker(later)
    router = stage.router(worker, policy="auto")
    wait_for(stage, router, {worker.url: 100})
    engine.page = vllm(300)
    router.core.set_healthy(worker.url, False)
    router.core.add_worker(other.url)
    eventually(lambda: later.asked == 1)  # so the fleet was looked at meanwhile
    assert engine.asked == 1
    router.core.set_healthy(worker.url, True)
    wait_for(stage, router, {worker.url: 300, other.url: 200})


def test_nobody_is_asked_under_a_policy_without_an_index(stage):
    engine = Engine(vllm(100))
    router = stage.router(stage.worker(engine), policy="least_load")
    client = stage.client(router)
    client.ask("POST", CHAT, body=b"{}")
    router.shutdown()
    router.must_end()
    assert engine.asked == 0
