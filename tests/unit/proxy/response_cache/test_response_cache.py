"""cpp/proxy/response_cache/response_cache.h: what all threads share."""

from concurrent.futures import ThreadPoolExecutor

from tests.fakes.cached import Engine, ask, body_of, cache_of, cached, counted


def test_threads_share_what_is_kept_and_what_is_counted(harness):
    engine = Engine(harness)
    router = cached(harness, engine, threads=4)
    ask(harness.client(router))

    def asked(seed):
        client = harness.client(router)
        return [cache_of(ask(client)), cache_of(ask(client, body_of(seed=seed)))]

    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(asked, range(40)))
    assert said == [["HIT", "MISS"]] * 40
    assert engine.count == 41
    assert counted(router, 'continuum_response_cache_requests_total{result="hit"}') == 40
    assert counted(router, 'continuum_response_cache_requests_total{result="miss"}') == 41
    assert counted(router, "continuum_response_cache_entries") == 41
    assert counted(router, 'vllm_router_response_cache_lookup_seconds_count{result="hit"}') == 40


def test_the_longest_times_of_lookups_have_a_bucket(harness):
    router = cached(harness, Engine(harness))
    ask(harness.client(router))
    name = 'vllm_router_response_cache_lookup_seconds_bucket{result="miss",le="+Inf"}'
    assert counted(router, name) == 1
