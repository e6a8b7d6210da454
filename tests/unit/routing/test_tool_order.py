"""cpp/routing/tool_order.h: what is asked of a tokenizer, and what its answers say."""

import json

import pytest

from vllm_router import Router
from vllm_router import _core_testing as testing

SYSTEM, TOOLS, REST = list(range(100, 120)), list(range(500, 580)), [1, 2, 3]
OTHER = list(range(200, 205))


def test_the_two_probes_of_a_model_differ_in_the_system_prompt_alone():
    first, second = (json.loads(testing.write_tool_probe('m "1"', second)) for second in (False, True))
    assert first["model"] == second["model"] == 'm "1"'
    assert first["tools"] == second["tools"]
    assert [message["role"] for message in first["messages"]] == ["system", "user"]
    texts = [probe["messages"][0].pop("content") for probe in (first, second)]
    assert first == second
    assert texts[0].split()[0] != texts[1].split()[0]
    assert texts[0].split()[-1] != texts[1].split()[-1]
    assert "model" not in json.loads(testing.write_tool_probe("", False))


@pytest.mark.parametrize(
    ("template", "order"),
    [
        (lambda system: [0, *TOOLS, *system, *REST], "first"),
        (lambda system: [0, *system, *TOOLS, *REST], "after"),
        (lambda system: [0, *system, *REST, *TOOLS], "after"),  # in the user's message
        (lambda system: [0, *system, *REST], "after"),  # none
        (lambda system: [*REST, *system], "after"),
        (lambda _system: [], "after"),
        (lambda _system: [0, *TOOLS], "after"),  # no system prompt: the same ids from both ends
    ],
)
def test_the_order_is_seen_in_where_the_ids_agree(template, order):
    assert testing.compare_tool_probes(template(SYSTEM), template(OTHER)) == order
    assert testing.compare_tool_probes(template(OTHER), template(SYSTEM)) == order


def test_the_order_is_learned_for_a_model_unless_it_is_fixed():
    def lacks(router, model):
        body = json.dumps({"model": model, "tools": [1], "messages": [{"role": "system", "content": "S"}]})
        return testing.make_blocks(router, body=body)["lacks_tool_order"]

    learning, fixed = Router("auto"), Router("auto", routing_text_tools="after")
    for router in (learning, fixed):
        testing.learn_tool_order(router, "m", "first")
    assert (lacks(learning, "m"), lacks(learning, "other"), lacks(fixed, "other")) == (False, True, False)
