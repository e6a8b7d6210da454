"""cpp/routing/prompt_members.h: which of a body's members holds its prompt, should several be there.

What each is read as: test_routing_text.py and test_prefix_digest.py.
"""

import itertools
import json

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

# Best first, with a prompt that names its member.
MEMBERS = {
    "messages": [{"role": "user", "content": "messages"}],
    "input": "input",
    "prompt": "prompt",
    "text": "text",
    "input_ids": [1],
    "token_ids": [2],
    "prompt_token_ids": [3],
    "query": "query",
    "queries": "queries",
    "text_1": "text_1",
    "data_1": "data_1",
    "prompt_embeds": "AAAA",
    "contents": [{"role": "user", "parts": [{"text": "contents"}]}],
}


@for_each_row(("better", "worse"), list(itertools.combinations(MEMBERS, 2)))
def test_the_first_of_the_list_counts_whatever_the_order_in_the_body(better, worse):
    def read(*names):
        body = json.dumps({name: MEMBERS[name] for name in names})
        return testing.routing_text(body), testing.prefix_anchor(body)

    assert read(better, worse) == read(worse, better) == read(better)
    assert read(better) != read(worse)
