"""Objects of hosts become what JSON has."""

from types import SimpleNamespace
from typing import Any

from vllm_router._host_models import plain


def model(**members: Any) -> Any:
    def model_dump(*, exclude_none: bool) -> dict[str, Any]:
        return {name: value for name, value in members.items() if value is not None or not exclude_none}

    return SimpleNamespace(model_dump=model_dump)


def test_models_are_dicts_without_what_is_none_also_in_lists() -> None:
    assert plain(model(role="user", name=None)) == {"role": "user"}
    assert plain([{"role": "user"}, model(role="tool"), [model(a=1)]]) == [
        {"role": "user"},
        {"role": "tool"},
        [{"a": 1}],
    ]


def test_what_is_no_model_stays() -> None:
    ids = [1, 2, 3]
    assert plain(ids) == ids
    assert plain("text") == "text"
    assert plain(None) is None
