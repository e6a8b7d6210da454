"""vllm_router.settings.command_line: spellings, repetition, errors."""

import argparse

import pytest

from tests.unit.python.settings.values import errors_of, parsed
from vllm_router.launch_router import parse_router_args
from vllm_router.router_args import RouterArgs


def test_a_value_may_be_two_dashes() -> None:
    # argparse before Python 3.13 drops them, which was an IndexError.
    assert parse_router_args(["--api-key=--"]).api_key == "--"


def test_worker_urls_accumulate_over_blanks_commas_and_repetition() -> None:
    line = "--worker-urls http://a:1,http://b:1 http://c:1 --worker-urls=http://d:1, --worker_urls http://e:1"
    assert parsed(line).worker_urls == [f"http://{host}:1" for host in "abcde"]


def test_a_repeated_scalar_keeps_the_last() -> None:
    assert parsed("--port 1 --port 2").port == 2


def test_a_switch_can_be_denied_again() -> None:
    assert parsed("--preserve-host --no-preserve-host").preserve_host is False
    assert parsed("--no-trust-forwarded").trust_forwarded is False
    assert parsed("--no_session_header_aliases").session_header_aliases is False


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--polcy random", "--polcy is not a flag of vllm-router; did you mean --policy?"),
        ("--max-payload 1", "--max-payload is not a flag of vllm-router; did you mean --max-payload-size?"),
        ("--health_check_timeout=1", "did you mean --health-check-timeout-secs?"),
        ("--zzz", "--zzz is not a flag of vllm-router; see vllm-router --help"),
        ("http://a:1", "http://a:1 is not a flag; pass worker URLs after --worker-urls"),
        (
            "--policy consistant_hash",
            "must be one of random, round_robin, least_load, power_of_two, consistent_hash",
        ),
        ("--policy consistant_hash", "did you mean consistent_hash?"),
        ("--policy smetric", "smetric itself is not offered, and its nearest here is auto"),
        (
            "--port 70000",
            "port is 70000; it is the HTTP port to listen on and must be a whole number between 0 and",
        ),
        ("--port 1_0", "port is 1_0; it is the HTTP port to listen on and must be a whole number"),
        ("--port -1", "port is -1; "),
        (
            "--virtual-nodes 0",
            "must be a whole number between 1 and 65536 (default 160, for prefix_aware, "
            "prefix_hash and kv_overlap 150)",
        ),
        ("--hash-load-factor 0.5", "must be 0 (off) or a number between 1.0 and 10.0 (default 0)"),
        ("--hash-load-factor nan", "hash_load_factor is nan; "),
        ("--connect-timeout-secs 0", "must be a number of seconds between 0.001 and 31536000 (default 5)"),
        (
            "--least-load-metric drain_time",
            "--least-load-metric drain_time is not implemented in vllm-router",
        ),
        ("--hash-key-fallback conversation", "must be one of opening, body"),
        ("--worker-urls a:8000", "must be URLs like http://host:8000, and 'a:8000' is not one"),
        ("--worker-urls http://a:99999", "'http://a:99999' is not one"),
        ("--worker-urls http://", "'http://' is not one"),
        ("--worker-urls grpc://a", "workers are reached by HTTP: use http://a or https://a"),
        ("--worker-urls grpc://a:1", "workers are reached by HTTP: use http://a:1 or https://a:1"),
        ("--worker-urls ray://a", "a server connects to its workers, and names (ray://, name://) are"),
        ("--mode pdd", "--mode is pdd; it must be one of regular, pd; did you mean pd?"),
        ("--prefill http://a x", "Invalid bootstrap port 'x' of prefill worker http://a"),
        ("--prefill http://a 1 2", "--prefill takes one URL and one bootstrap port, not http://a 1 2"),
        ("--host", "argument --host: expected one argument"),
        ("--config /no/such/file", "--config /no/such/file cannot be read: No such file or directory"),
    ],
)
def test_mistakes_end_with_a_sentence_and_status_2(
    line: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = errors_of(line, capsys)
    assert sentence in said
    assert said.startswith("vllm-router: error: ")
    assert said.count("\n") == 1


def test_abbreviations_are_not_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean --prometheus-port?" in errors_of("--prometheus-por 1", capsys)


def test_host_and_port_are_never_prefixed() -> None:
    parser = argparse.ArgumentParser()
    RouterArgs.add_cli_args(parser, use_router_prefix=True)
    args = RouterArgs.from_cli_args(parser.parse_args(["--host", "h", "--port", "1"]), use_router_prefix=True)
    assert (args.host, args.port) == ("h", 1)


def test_a_former_name_is_not_in_the_help() -> None:
    parser = argparse.ArgumentParser()
    RouterArgs.add_cli_args(parser)
    assert "--spread-new-conversations" in parser.format_help()
    assert "spread-starts" not in parser.format_help()


def test_a_former_flag_has_the_prefix_of_the_others(caplog: pytest.LogCaptureFixture) -> None:
    parser = argparse.ArgumentParser()
    RouterArgs.add_cli_args(parser, use_router_prefix=True)
    args = RouterArgs.from_cli_args(parser.parse_args(["--router-spread-starts"]), use_router_prefix=True)
    assert args.spread_new_conversations is True
    assert "use --router-spread-new-conversations" in caplog.text
