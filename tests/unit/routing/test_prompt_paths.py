"""cpp/routing/prompt_paths.h: which requests have their prompt computed, in the server and in the library."""

import json

from tests.rows import for_each_row
from vllm_router import Router
from vllm_router import _core_testing as testing

BODY = json.dumps({"messages": [{"role": "user", "content": "hello " * 100}], "max_tokens": 50}).encode()


@for_each_row("policy", ["auto", "cache_aware", "prefix_aware"])
@for_each_row(
    ("path", "computes"),
    [
        ("/tokenize", False),
        ("/v1/detokenize", False),
        ("/v1/messages/count_tokens", False),
        ("/v1/responses/input_tokens", False),
        ("/v1/chat/completions/render", False),
        ("/v1/chat/completions", True),
        ("/v1/embeddings", True),
        ("/tokenizer", True),
        ("", True),
    ],
)
def test_a_prompt_that_is_not_computed_is_none(policy, path, computes):
    """Row 13: nothing to match, to remember or to wait for."""
    router = Router(policy, ["http://w1:8000"])
    key = testing.make_key(router, path=path, body=BODY)
    assert (key["prompt_tokens"] > 1) is computes
    assert (key["expected_output"] > 0) is computes
    assert (key["prompt"] is not None or key["prefix_digest"] is not None or policy == "auto") is (
        computes or policy == "auto"
    )
    ticket = router.select(path=path, body=BODY)
    ticket.finish()
    assert (router.explain(path=path, body=BODY).matched > 0) is (computes and policy != "prefix_aware")
