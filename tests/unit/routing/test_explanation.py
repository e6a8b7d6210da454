"""cpp/routing/explanation.h: why a worker was chosen, in words."""

from tests.rows import for_each_row
from vllm_router import Router
from vllm_router import _core_testing as testing

A, B, C = (f"http://{name}:8000" for name in "abc")


def test_a_ticket_tells_whom_it_was_chosen_among():
    router = Router("cache_aware", [A, B, C], seed=1)
    router.add_worker("http://d:8000")
    router.drain_worker("http://d:8000")
    prompt = "You are kind. " * 40
    with router.select(prompt=prompt, exclude=[A, C]), router.select(prompt=prompt, explain=True) as ticket:
        assert ticket.reason == "prefix_hit"
        first, _, heading, *rows = ticket.explain().splitlines()
    assert first == (
        f"{B}, chosen by cache_aware: it was sent the largest part of the prompt, "
        "560 of 560 bytes (prefix_hit)."
    )
    assert heading.split("  ")[1].strip() == "worker"
    assert heading.split()[-1] == "matched"
    assert rows[0].split() == [">", B, "1", "396", "1", "560"]
    assert [row.split()[0] for row in rows[1:3]] == [A, C]
    assert [row.split()[-1] for row in rows[1:3]] == ["0", "0"]
    assert rows[3:] == ["", "1 other worker was not eligible."]


def test_policies_that_match_nothing_show_loads_alone():
    router = Router("round_robin", [A, B])
    router.add_worker(C, weight=2.5)
    ticket = router.select(explain=True)
    lines = ticket.explain().splitlines()
    assert lines[0] == f"{C}, chosen by round_robin: it is the next one in turn (round_robin)."
    assert lines[2].split() == ["worker", "open", "requests", "outstanding", "tokens", "weight"]
    assert [line.split() for line in lines[3:]] == [
        [">", C, "0", "0", "2.5"],
        [A, "0", "0", "1"],
        [B, "0", "0", "1"],
    ]
    assert "not eligible" not in ticket.explain()


def test_blocks_are_explained_as_well():
    router = Router("vllm_cache_aware", [A, B], seed=1)
    ids = list(range(64))
    router.select(token_ids=ids, exclude=[A]).finish()
    text = router.select(token_ids=ids, explain=True).explain()
    assert text.splitlines()[0].endswith(
        "it was sent the largest part of the prompt, 3 of 4 blocks (prefix_hit)."
    )
    assert [line.split()[-1] for line in text.splitlines()[3:]] == ["4", "0"]


def test_without_being_asked_only_the_reason_is_known():
    text = Router("cache_aware", [A]).select(prompt="Hi").explain()
    assert text.startswith(
        f"{A}, chosen by cache_aware: no worker was sent enough of the prompt, and this one has the "
        "lowest load, 0 of 2 bytes (prefix_miss)."
    )
    assert "explain=True" in text


@for_each_row("reason", testing.reason_names())
def test_every_reason_has_its_words_and_its_method(reason):
    words, method = testing.words_of_reason(reason)
    assert f" ({reason})." in words
    assert ": ," not in words
    assert ":  (" not in words
    assert method in ("cache_hit", "load", "sticky", "fallback")
