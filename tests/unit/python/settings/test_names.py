"""vllm_router.settings.names: former names."""

import re
from collections.abc import Callable

import pytest

from tests.unit.python.settings.values import parsed
from vllm_router.router_args import RouterArgs, check_policy_options

FORMER = "spread_starts"


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: parsed("--no-spread-starts"), "--no-spread-starts is .* use --no-spread-new-conversations"),
        (lambda: parsed("--no_spread_starts"), "--no_spread_starts is .* use --no-spread-new-conversations"),
        (lambda: RouterArgs(spread_starts=False), "spread_starts is .* use spread_new_conversations"),  # type: ignore[call-arg]
        (lambda: RouterArgs.from_dict({FORMER: False}), "spread_starts is .* use spread_new_conversations"),
        (lambda: RouterArgs.from_yaml("spread-starts: false"), "spread-starts is .* use spread_new_conv"),
    ],
    ids=["line", "line with _", "python", "dict", "yaml"],
)
def test_a_former_name_is_accepted_and_the_log_says_so_once(
    made: Callable[[], RouterArgs], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    args = made()
    assert args.spread_new_conversations is False
    assert args.policy == "cache_aware"  # a setting of its own chooses it, by either name
    (said,) = [line for line in caplog.messages if "deprecated" in line]
    assert re.match(message, said)


def test_a_former_name_is_an_option_of_the_library_and_an_attribute(caplog: pytest.LogCaptureFixture) -> None:
    options = check_policy_options({"policy": "cache_aware", FORMER: False})
    assert options["spread_new_conversations"] is False
    assert FORMER not in options
    args = RouterArgs(spread_new_conversations=False)
    assert getattr(args, FORMER) is False
    setattr(args, FORMER, True)
    assert args.spread_new_conversations is True
    assert [line.split(";")[0] for line in caplog.messages if "deprecated" in line] == [
        "spread_starts is deprecated and will be removed in the next minor release"
    ]


def test_a_former_name_beside_the_present_one_is_an_error() -> None:
    with pytest.raises(TypeError, match="spread_starts sets spread_new_conversations a second time"):
        RouterArgs(spread_new_conversations=True, spread_starts=False)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="spread_starts sets spread_new_conversations a second time"):
        RouterArgs.from_yaml("{spread_new_conversations: true, spread_starts: false}")
