"""vllm_router.settings.names: former names, and what a name that is not known may mean."""

import re
from collections.abc import Callable

import pytest

from tests.unit.python.settings.values import errors_of, parsed
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


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--workers http://a", "the workers' URLs are --worker-urls"),
        ("--backends http://a", "the workers' URLs are --worker-urls"),
        ("--tls-cert a.pem", "did you mean --tls-cert-path?"),
        ("--tls-key a.key", "did you mean --tls-key-path?"),
        ("--ssl-certfile a.pem", "is --tls-cert-path"),
        ("--worker-cert a.pem", "did you mean --worker-cert-path?"),
        ("--request-timeout 3", "did you mean --request-timeout-secs?"),
        ("--circuit-breaker", "it is on unless --disable-circuit-breaker is given"),
        ("--enable-retries", "retries are on unless --disable-retries is given"),
        ("--metrics-port 1", "metrics are at --prometheus-host and --prometheus-port"),
        ("--prefill-url http://a", "a prefill worker is --prefill"),
        ("serve --port 1", "serve is not a command; vllm-router serves without one"),
        ("help", "help is not a command; vllm-router --help shows the flags"),
        ("version", "vllm-router --version shows the version"),
    ],
)
def test_a_name_is_understood_by_its_meaning(
    line: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Row 45 of the third list: by letters alone --workers was --worker-srv, and most others were nothing."""
    assert says in errors_of(line, capsys)


def test_yaml_understands_a_name_by_its_meaning_too() -> None:
    for text, says in (("workers: [http://a]", "--worker-urls"), ("tls_cert: a.pem", "mean tls_cert_path?")):
        with pytest.raises(ValueError, match=re.escape(says)):
            RouterArgs.from_yaml(text)
