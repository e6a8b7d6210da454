"""cpp/proxy/client/load_report.h: what workers say of their load, and where they say it."""

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

VLLM = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 4.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 4.0
vllm:kv_cache_usage_perc{engine="0"} NaN
"""
SGLANG = """sglang:num_running_reqs{model_name="m",dp_rank="0"} 5
sglang:num_queue_reqs{model_name="m",dp_rank="0"} 1
"""


LLAMACPP = """# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 3
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 2
"""


@for_each_row(
    ("text", "rank", "load"),
    [
        (LLAMACPP, None, (5, 2)),  # row 59: every poll of it failed
        (LLAMACPP, 0, None),  # it has no ranks
        ("llamacpp:requests_processing 3", None, None),
        (VLLM, None, (9, 4)),
        (VLLM, 0, (7, 4)),
        (VLLM, 1, (2, 0)),
        (VLLM, 2, None),
        (VLLM.replace("\n", "\r\n"), None, (9, 4)),
        (SGLANG, None, (6, 1)),
        (SGLANG, 0, (6, 1)),
        ("vllm:num_requests_running 1\nvllm:num_requests_waiting 2e0 1700000000000", None, (3, 2)),
        ("vllm:num_requests_running 1\nvllm:num_requests_waiting 2", 0, None),  # no rank says so
        ('vllm:num_requests_running { a = "}\\"\\\\\\n" , } 1\nvllm:num_requests_waiting\t2', None, (3, 2)),
        ("", None, None),
        ("vllm:num_requests_running 1\n", None, None),  # waiting is missing
        ("vllm:num_requests_running 1\nsglang:num_queue_reqs 1\n", None, None),
    ],
)
def test_loads_in_metrics(text, rank, load):
    assert testing.load_in_metrics(text, rank) == load


@for_each_row(
    "sample",
    [
        "-1",
        "NaN",
        "+Inf",
        "1e99",
        "",
        "x",
        "1x",
        "1 x",
        '{a="b} 1',
        '{a="b"',
        "{a=b} 1",
        '{="b"} 1',
        '{a="b" c="d"} 1',
        '{a="\\',
        str(testing.MOST_REPORTED_LOAD + 1),
    ],
)
def test_a_sample_that_is_not_as_it_should_be_makes_the_whole_none(sample):
    good = "vllm:num_requests_running 1\nvllm:num_requests_waiting 2\n"
    blank = "" if sample.startswith("{") else " "
    assert testing.load_in_metrics(good) == (3, 2)
    assert testing.load_in_metrics(f"{good}vllm:num_requests_running{blank}{sample}\n") is None


def test_the_sum_has_the_limit_too():
    half = testing.MOST_REPORTED_LOAD // 2
    text = f"vllm:num_requests_running {half}\nvllm:num_requests_waiting "
    assert testing.load_in_metrics(text + str(half)) == (2 * half, half)
    assert testing.load_in_metrics(text + str(half + 1)) is None


LOAD = "vllm:num_requests_running 1\nvllm:num_requests_waiting 2\n"


@pytest.mark.parametrize(
    ("more", "rank", "use"),
    [
        ("", None, None),
        ("vllm:kv_cache_usage_perc 0.25", None, 0.25),
        ("vllm:gpu_cache_usage_perc 0", None, 0.0),
        ("sglang:token_usage 1", None, 1.0),
        ('vllm:kv_cache_usage_perc{engine="0"} 0.5\nvllm:kv_cache_usage_perc{engine="1"} 0.25', None, 0.375),
        ("vllm:kv_cache_usage_perc 1.01", None, None),
        ("vllm:kv_cache_usage_perc -0.1", None, None),
        ("vllm:kv_cache_usage_perc NaN\nvllm:gpu_cache_usage_perc 0.5", None, None),
        ("vllm:kv_cache_usage_perc", None, None),
    ],
)
def test_the_use_of_the_cache_is_a_share_or_not_known(more, rank, use):
    assert testing.load_in_metrics(LOAD + more, rank) == (3, 2)
    assert testing.kv_use_in_metrics(LOAD + more, rank) == use


def test_each_rank_has_a_use_of_its_own():
    use = 'vllm:kv_cache_usage_perc{engine="0"} 0.5\nvllm:kv_cache_usage_perc{engine="1"} NaN\n'
    text = VLLM.replace('vllm:kv_cache_usage_perc{engine="0"} NaN\n', use)
    assert testing.kv_use_in_metrics(text, 0) == 0.5
    assert testing.kv_use_in_metrics(text, 1) is None
    assert testing.kv_use_in_metrics(text) is None


def cache_of(blocks="27134", size="16", engine="0"):
    return f'vllm:cache_config_info{{block_size="{size}",engine="{engine}",num_gpu_blocks="{blocks}"}} 1.0\n'


@for_each_row(
    ("text", "rank", "tokens"),
    [
        (VLLM + cache_of(), None, 27134 * 16),
        (cache_of() + cache_of("100", engine="1"), None, 27134 * 16 + 1600),
        (cache_of() + cache_of("100", engine="1"), 1, 1600),
        (cache_of(), 1, None),
        (cache_of("None"), None, None),  # not measured yet
        (cache_of("0"), None, None),
        (cache_of("-5"), None, None),
        (cache_of("5", size="auto"), None, None),
        (cache_of(str(2**64)), None, None),
        (cache_of(str(testing.MOST_CACHE_TOKENS // 16)), None, testing.MOST_CACHE_TOKENS),
        (cache_of(str(testing.MOST_CACHE_TOKENS // 16 + 1)), None, None),
        (cache_of(str(testing.MOST_CACHE_TOKENS // 16)) + cache_of("1", engine="1"), None, None),
        ("vllm:cache_config_info 1\n", None, None),
        ('vllm:cache_config_info{num_gpu_blocks="5} 1\n', None, None),
        (VLLM, None, None),
        ("sglang:max_total_num_tokens 48000\n", None, 48000),
        ("sglang:max_total_num_tokens 48000\n", 0, 48000),
        ('sglang:max_total_num_tokens{dp_rank="1"} 48000\n', 0, None),
        ("sglang:max_total_num_tokens NaN\n", None, None),
        ("", None, None),
    ],
)
def test_cache_tokens_in_metrics(text, rank, tokens):
    cache = testing.cache_in_metrics(text, rank)
    assert (cache and cache[0]) == tokens


SGLANG_TOKENS = "sglang:max_total_num_tokens 48000\n"


@for_each_row(
    ("text", "cache"),
    [
        (cache_of(), (27134 * 16, 16)),
        (cache_of("10", size="1056"), (10560, 1056)),  # of a hybrid model
        (cache_of("10", size="32") + cache_of("10", size="64", engine="1"), (960, 64)),
        (SGLANG_TOKENS, (48000, 0)),
        (SGLANG_TOKENS + "sglang:page_size 64.0\n", (48000, 64)),
        ("sglang:page_size 64.0\n" + SGLANG_TOKENS, (48000, 64)),
        (SGLANG_TOKENS + 'sglang:cache_config_info{page_size="64",num_pages="750"} 1.0\n', (48000, 64)),
        (SGLANG_TOKENS + "sglang:page_size 0.0\n", (48000, 0)),  # not set yet
        ("sglang:page_size 64.0\n", None),
        (SGLANG_TOKENS + "sglang:page_size -1\n", None),
        (SGLANG_TOKENS + "sglang:page_size NaN\n", None),
        (SGLANG_TOKENS + "sglang:page_size 1e12\n", None),
        (SGLANG_TOKENS + f"sglang:page_size {2**16 + 1}\n", None),
        (cache_of("1", size=str(2**16)), (2**16, 2**16)),
        (cache_of("1", size=str(2**16 + 1)), None),
        (cache_of("1", size=str(10**12)), None),
        (cache_of("1", size=str(2**64)), None),
        (cache_of("1", size="0"), None),
        (cache_of("1", size="-16"), None),
        (cache_of("1", size="NaN"), None),
    ],
)
def test_block_sizes_in_metrics(text, cache):
    assert testing.cache_in_metrics(text, None) == cache


@pytest.mark.parametrize(
    ("text", "rank", "blocks"),
    [
        (cache_of("10"), None, [(0, 9)]),  # one is never used
        (cache_of("10") + cache_of("20", engine="1"), None, [(0, 9), (1, 19)]),
        (cache_of("10") + cache_of("20", engine="1"), 1, [(1, 19)]),
        (cache_of("10", engine="x"), None, []),
        (SGLANG_TOKENS, None, []),  # pages of any size
        (SGLANG_TOKENS + "sglang:page_size 64.0\n", None, [(None, 750)]),
        (
            'sglang:page_size{dp_rank="0"} 64\n'
            'sglang:max_total_num_tokens{dp_rank="0",tp_rank="0"} 6400\n'
            'sglang:max_total_num_tokens{dp_rank="0",tp_rank="1"} 6399\n'
            'sglang:max_total_num_tokens{dp_rank="1",tp_rank="0"} 12800\n',
            None,
            [(0, 100), (1, 200)],
        ),
    ],
)
def test_gpu_blocks_in_metrics(text, rank, blocks):
    assert testing.gpu_blocks_in_metrics(text, rank) == blocks


@pytest.mark.parametrize(("read", "member"), [("load_in_get_load", "load"), ("load_in_load", "server_load")])
def test_loads_in_json(read, member):
    load_in = getattr(testing, read)
    assert load_in(f'{{"{member}": 7, "x": null}}') == (7, 0)
    assert load_in(f'{{"{member}": 0}}') == (0, 0)
    wrong = ["-1", "1.5", '"7"', "null", "1e2", "[7]", str(testing.MOST_REPORTED_LOAD + 1), str(2**64 - 1)]
    for value in wrong:
        assert load_in(f'{{"{member}": {value}}}') is None, value
    for text in ("", "7", "[]", "{}", f'{{"{member}":7', '{"other": 7}', f'{{"{member}": 7}} x'):
        assert load_in(text) is None, text


def polls(source, lacking, count):
    """Where each of some polls asks, until it finds what it wants."""
    asked = []
    for _ in range(count):
        source.begin()
        here = []
        while (target := source.target()) and (here.append(target) or target in lacking):
            source.lacks()
        asked.append(here)
    return asked


def test_a_worker_is_asked_where_it_answered_the_last_time():
    assert polls(testing.LoadSource(), {}, 2) == [["/metrics"], ["/metrics"]]
    assert polls(testing.LoadSource(), {"/metrics"}, 2) == [["/metrics", "/get_load"], ["/get_load"]]
    lacking = {"/metrics", "/get_load"}
    assert polls(testing.LoadSource(), lacking, 2) == [["/metrics", "/get_load", "/load"], ["/load"]]


def test_a_worker_that_changes_is_asked_everywhere_again():
    source = testing.LoadSource()
    polls(source, {"/metrics"}, 1)
    assert polls(source, {"/get_load"}, 1) == [["/get_load", "/load"]]
    assert polls(source, {"/load"}, 1) == [["/load", "/metrics"]]


def test_a_worker_that_says_it_nowhere_is_asked_again_after_a_pause():
    nowhere = {"/metrics", "/get_load", "/load"}
    asked = polls(testing.LoadSource(), nowhere, 12)
    everywhere = ["/metrics", "/get_load", "/load"]
    assert asked == [everywhere, *[[]] * 9, everywhere, []]
