"""How the tests of the simulated worker's APIs speak to them: bodies in, responses and events out."""

import json
from typing import Any

import pytest

from vllm_router import _core_testing as testing


def parse(api: str, body: Any, **model: Any) -> testing.SimRequest:
    served = testing.SimModel()
    for name, value in model.items():
        setattr(served, name, value)
    return testing.parse_sim_request(api, body if isinstance(body, str) else json.dumps(body), served)


def refuse(api: str, body: Any, **model: Any) -> dict[str, Any]:
    with pytest.raises(ValueError, match="error") as refused:
        parse(api, body, **model)
    return json.loads(str(refused.value))["error"]


def text_of(request: testing.SimRequest, prompt: int = 0) -> str:
    return testing.text_of_tokens(request.prompts[prompt]).decode()


def chat(*contents: Any, **fields: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    return {
        "messages": [{"role": roles[i % 2], "content": text} for i, text in enumerate(contents)],
        **fields,
    }


def events(stream: str) -> list[Any]:
    """The data of each event; every event ends with an empty line."""
    assert stream.endswith("\n\n")
    lines = [
        line for event in stream[:-2].split("\n\n") for line in event.split("\n") if line.startswith("data: ")
    ]
    return [line[6:] if line == "data: [DONE]" else json.loads(line[6:]) for line in lines]


def scripted(text: str, *calls: str | tuple[str, dict[str, Any]]) -> str:
    """A script of one turn. A call is a name, or a name and arguments."""
    named = [(call, None) if isinstance(call, str) else call for call in calls]
    turn = {
        "text": text,
        "calls": [
            {"name": name} if arguments is None else {"name": name, "arguments": arguments}
            for name, arguments in named
        ],
    }
    return json.dumps([turn])
