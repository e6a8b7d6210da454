"""cpp/policy/prompt_memory.h: two trees under one limit, and the thread that tidies up."""

from tests.fakes.wire import eventually
from vllm_router import Router
from vllm_router import _core_testing as testing


def policy(**options):
    made = testing.PolicyHarness("cache_aware", **options)
    for i in range(2):
        made.add(f"http://w{i}:8000")
    return made


def test_texts_and_ids_share_one_limit_and_each_grows_at_the_other_s_cost():
    memory = policy(max_tree_size=4096)
    for i in range(20):
        memory.choose_prompt(b"%04d" % i * 100)
    assert 3600 <= memory.stats()["cache_routing"]["bytes"] <= 4096
    for i in range(20):
        memory.choose_prompt([i] * 160)
        assert memory.stats()["cache_routing"]["bytes"] <= 4096
    # The last prompt of each kind that fits is there: 6 prompts of 160 ids are 3840 bytes.
    assert memory.choose_prompt([19] * 160)[2] == 160
    for i in range(20):
        memory.choose_prompt(b"%04d" % i * 100)
        assert memory.stats()["cache_routing"]["bytes"] <= 4096
    assert memory.choose_prompt(b"0019" * 100)[2] == 400


def test_a_prompt_larger_than_the_limit_is_not_remembered():
    memory = policy(max_tree_size=1024)
    assert memory.choose_prompt(b"x" * 1025)[1] == "prefix_miss"
    assert memory.stats()["cache_routing"]["bytes"] == 0


def test_a_worker_whose_cache_is_small_forgets_what_it_used_least_recently():
    """mending row 36: cache_aware knew no capacity."""
    memory = policy()
    memory.set_cache_size("http://w0:8000", 1000)
    for i in range(4):
        memory.choose_prompt(b"%04d" % i * 100, tried=[1])
        assert memory.cache_sizes()[0] <= 1000
    assert memory.choose_prompt(b"0003" * 100)[:3] == (0, "prefix_hit", 400)
    assert memory.choose_prompt(b"0000" * 100)[1] == "prefix_miss"
    for i in range(4):  # the other one has no limit that anybody knows
        memory.choose_prompt(b"x%03d" % i * 100, tried=[0])
    assert memory.cache_sizes()[1] >= 1600


def test_a_cache_of_texts_and_ids_has_one_limit():
    memory = policy()
    memory.set_cache_size("http://w0:8000", 2048)
    for i in range(8):
        memory.choose_prompt([i] * 160, tried=[1])
        memory.choose_prompt(b"%04d" % i * 100, tried=[1])
        assert memory.cache_sizes()[0] <= 2048
    assert memory.choose_prompt([7] * 160, tried=[1])[2] == 160
    assert memory.choose_prompt(b"0007" * 100, tried=[1])[2] == 400


def test_a_cache_that_shrinks_forgets_at_once_and_a_new_worker_has_no_limit():
    memory = policy()
    for i in range(50):
        memory.choose_prompt(b"%04d" % i * 100, tried=[1])
    memory.set_cache_size("http://w0:8000", 500)
    assert memory.cache_sizes()[0] <= 500
    memory.remove("http://w0:8000")
    memory.add("http://w0:8000")
    for i in range(5):
        memory.choose_prompt(b"%04d" % i * 100, tried=[0])
    assert memory.cache_sizes()[1] > 1900


def test_what_a_worker_had_is_given_up_in_the_background():
    memory = policy(eviction_interval_secs=1)
    for i in range(50):
        memory.choose_prompt(b"%04d" % i * 100, tried=[1])
    assert memory.stats()["cache_routing"]["bytes"] > 0
    memory.remove("http://w0:8000")
    eventually(lambda: memory.stats()["cache_routing"]["bytes"] == 0, patience=30)


def test_workers_may_come_and_go_more_often_than_there_is_room_for():
    router = Router(worker_urls=["http://stays:8000"])
    for i in range(5000):
        router.add_worker("http://comes:8000")
        if i % 500 == 0:
            router.select(prompt="x" * 100, exclude=["http://stays:8000"]).finish()
        router.remove_worker("http://comes:8000")
    with router.select(prompt="x" * 100) as ticket:
        assert ticket.worker_url == "http://stays:8000"
