"""vllm_router.settings.yaml: a file of settings and its sections."""

import re
from pathlib import Path

import pytest

from tests.unit.python.settings.values import errors_of, parsed
from vllm_router.router_args import RouterArgs


def test_yaml_takes_the_names_of_python_and_of_the_command_line() -> None:
    text = """
        worker-urls: http://a:1, http://b:1
        policy: consistent-hash
        eviction-interval: 120
        health_check_interval_secs: 2.5
        api_key: null
        preserve_host: true
        selector: {}
    """
    args = RouterArgs.from_yaml(text)
    assert args == RouterArgs(
        worker_urls=["http://a:1", "http://b:1"],
        policy="consistent_hash",
        health_check_interval_secs=2.5,
        preserve_host=True,
    )


def test_yaml_takes_prefill_rows_and_selectors() -> None:
    args = RouterArgs.from_yaml(
        "prefill: [[http://a, 1], [http://b, none], http://c]\nselector: {app: vllm}\nmode: pd"
    )
    assert args.prefill_urls == [("http://a", 1), ("http://b", None), ("http://c", None)]
    assert args.selector == {"app": "vllm"}
    assert args.vllm_pd_disaggregation is True


def test_an_empty_file_changes_nothing() -> None:
    assert RouterArgs.from_yaml("# nothing\n") == RouterArgs()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("polcy: random", "f.yaml: polcy is not a known setting; did you mean policy?"),
        ("kv-model: x", "f.yaml: kv-model is --kv-event-model here"),
        ("zzzzz: 1", "f.yaml: zzzzz is not a known setting; docs/reference/cli.md lists them all"),
        ("port: '1'", "f.yaml: port is 1; it is the HTTP port to listen on and must be a whole number"),
        ("port: null", "f.yaml: port is unset; "),
        ("port: yes", "f.yaml: port is true; "),
        ("port: 1\nport: 2", "f.yaml: port appears twice; keep one of them"),
        ("worker_urls: []\nworker-urls: []", "f.yaml: worker-urls sets worker_urls a second time"),
        ("worker_urls: [grpc://a]", "f.yaml: --worker-urls grpc://a is not implemented in vllm-router"),
        ("selector: 7", "f.yaml: selector is 7; write it as {app: vllm}"),
        ("prefill: 7", "f.yaml: prefill is 7; write it as [[http://host:8000, 8998]"),
        ("- port", "f.yaml must be a mapping of names to values"),
        ("port: [", "f.yaml is not YAML: "),
    ],
)
def test_mistakes_in_yaml_are_named_with_their_file(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        RouterArgs.from_yaml(text, "f.yaml")


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "router.yaml"
    file.write_text(
        "port: 1\npolicy: random\nworker_urls: [http://file:1]\npreserve_host: true\nlog_level: warning\n"
        "request_timeout_secs: 7\nprefill: [[http://p, 1]]\n"
    )
    args = parsed(
        f"--port 2 --config {file} --worker-urls http://line:1 --no-preserve-host --worker-urls http://l:2"
    )
    assert (args.port, args.policy, args.request_timeout_secs) == (2, "random", 7)
    assert args.worker_urls == ["http://line:1", "http://l:2"]
    assert args.preserve_host is False
    assert args.log_level == "warn"
    assert args.prefill_urls == [("http://p", 1)]
    assert args.prometheus_port == 29000


def test_mistakes_in_the_file_end_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "router.yaml"
    file.write_text("polcy: random\n")
    assert f"{file}: polcy is not a known setting; did you mean policy?" in errors_of(
        f"--config {file}", capsys
    )
    file.write_bytes(b"\xff")
    assert "cannot be read: it is not UTF-8 text" in errors_of(f"--config {file}", capsys)


SECTION = "prefix_routing:\n  enabled: true\n  max_prefix_length: 2048\n  load_factor_epsilon: 0.2\n"


def test_the_section_prefix_routing_chooses_the_policy_and_sets_its_options() -> None:
    args = RouterArgs.from_yaml(SECTION + "  virtual_nodes: 99\n  anthropic_cache_control_injection: false\n")
    assert (args.policy, args.max_prefix_length, args.load_factor_epsilon) == ("prefix_aware", 2048, 0.2)
    assert args.virtual_nodes == 99
    assert args.warnings()[0].startswith("no worker URLs")
    for named in ("policy: chwbl\n", "policy: prefix-aware\n", "routing: {policy: prefix_aware}\n"):
        assert RouterArgs.from_yaml(named + SECTION).policy in ("prefix_aware", "chwbl", "prefix-aware")


def test_a_section_that_is_off_chooses_nothing() -> None:
    assert RouterArgs.from_yaml("prefix_routing:\n  enabled: false\n").policy == "auto"
    assert RouterArgs.from_yaml("prefix_routing:\n").policy == "auto"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("prefix_routing: 5", "f.yaml: prefix_routing is 5; write it as {enabled: true}"),
        ("prefix_routing: {enabled: 1}", "f.yaml: prefix_routing.enabled is 1; it must be true or false"),
        ("prefix_routing: {epsilon: 1}", "f.yaml: prefix_routing.epsilon is not a known setting"),
        ("prefix_routing: {max_prefix_lenth: 1}", "did you mean max_prefix_length?"),
        ("prefix_routing: {load_factor_epsilon: 0}", "load_factor_epsilon is 0; it is the share above"),
        ("virtual_nodes: 1\nprefix_routing: {virtual_nodes: 2}", "virtual_nodes set the same option"),
        ("policy: random\nprefix_routing: {enabled: true}", "chooses prefix_aware, and policy is random"),
        ("prefix_routing: {anthropic_cache_control_injection: true}", "is not implemented in vllm-router"),
    ],
)
def test_mistakes_in_the_section_are_named(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        RouterArgs.from_yaml(text, "f.yaml")
