"""vllm_router.settings.args: RouterArgs, other programs' parsers, and what the core gets."""

import argparse
import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.python.settings.values import parsed
from vllm_router._core import Server
from vllm_router._version import __version__
from vllm_router.router_args import FLAGS, RouterArgs, check_policy_options
from vllm_router.settings.host import available_cpus

ROOT = Path(__file__).parents[4]


def test_settings_of_two_parsers_do_not_share_their_lists() -> None:
    parsed("").worker_urls.append("http://a:1")
    RouterArgs().otel_excluded_paths.clear()
    assert parsed("").worker_urls == []
    assert len(RouterArgs().otel_excluded_paths) == 4


def test_prefill_rows_accumulate_and_read_ports_as_the_reference_does() -> None:
    args = parsed(
        "--prefill http://a:1 8998 --prefill http://b:1 NONE --prefill http://c:1 --decode http://d:1"
    )
    assert args.prefill_urls == [("http://a:1", 8998), ("http://b:1", None), ("http://c:1", None)]
    assert args.decode_urls == ["http://d:1"]


@pytest.mark.parametrize("port", ["x", "0", "65536", "-1"])
def test_a_bad_bootstrap_port_is_named(port: str) -> None:
    with pytest.raises(ValueError, match=r"Invalid bootstrap port '.*' of prefill worker http://a"):
        RouterArgs._parse_prefill_urls([["http://a", port]])


def test_a_foreign_parser_takes_the_flags_with_a_prefix() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--policy")  # the trainer's own
    parser.add_argument("--seed", type=int, default=1)
    RouterArgs.add_cli_args(parser, use_router_prefix=True, exclude_host_port=True)
    namespace = parser.parse_args(
        [
            "--policy",
            "ppo",
            "--router-policy",
            "round_robin",
            "--worker-urls",
            "http://a:1",
            "--router-prefill",
            "http://p",
            "1",
            "--router_max_payload_size",
            "7",
            "--router-data-parallel-size",
            "2",
        ]
    )
    args = RouterArgs.from_cli_args(namespace, use_router_prefix=True)
    assert namespace.policy == "ppo"
    assert namespace.router_policy == "round_robin"
    assert (args.policy, args.worker_urls, args.max_payload_size) == ("round_robin", ["http://a:1"], 7)
    assert args.intra_node_data_parallel_size == 2
    assert args.prefill_urls == [("http://p", 1)]
    assert args.seed is None
    assert (args.host, args.port) == ("127.0.0.1", 30000)


def test_an_empty_namespace_gives_the_class_s_defaults() -> None:
    assert RouterArgs.from_cli_args(argparse.Namespace()) == RouterArgs()


def test_a_foreign_parser_prints_its_help() -> None:
    parser = argparse.ArgumentParser(prog="train")
    RouterArgs.add_cli_args(parser, use_router_prefix=True)
    text = parser.format_help()
    assert "--router-policy NAME" in text
    assert "--router-wasm-middleware" not in text


def test_router_options_are_the_fleet_and_the_policy_options() -> None:
    args = RouterArgs(worker_urls=["http://a:1"], policy="round-robin", seed=7)
    assert args.router_options() == {
        "worker_urls": ["http://a:1"],
        **check_policy_options({"policy": "round_robin", "seed": 7}),
    }


def test_server_options_are_the_server_s_fields_with_nothing_left_open() -> None:
    options = parsed("--log-level WARNING --request-id-headers X-Trace").server_options()
    assert set(options) == {name for name, flag in FLAGS.items() if flag.scope == "server"}
    assert options["threads"] == min(4, available_cpus())
    assert options["log_level"] == "warn"
    assert options["request_id_headers"] == ["x-trace"]
    assert (options["prometheus_host"], options["prometheus_port"]) == ("127.0.0.1", 29000)
    defaults = RouterArgs().server_options()
    assert defaults["request_id_headers"] == ["x-request-id", "x-correlation-id", "x-trace-id", "request-id"]
    assert defaults["log_level"] == "info"


def test_metrics_need_both_host_and_port_as_in_the_reference() -> None:
    options = RouterArgs(prometheus_port=9000).server_options()
    assert (options["prometheus_host"], options["prometheus_port"]) == (None, None)


def test_the_server_takes_the_options_that_are_made_for_it() -> None:
    logging = {"log_level", "log_dir", "log_format", "config_reload"}  # taken in Python, too
    logging |= {"enable_program_scheduling", "program_scheduling_config_json"}
    sources = {  # sources of workers take these, in Python
        *("worker_file", "worker_dns", "worker_srv", "dns_server", "dns_min_secs", "dns_max_secs"),
        *("service_discovery", "selector", "service_discovery_port", "service_discovery_namespace"),
        *(
            "service_discovery_service",
            "inference_pool",
            "kubeconfig",
            "kube_context",
            "discovery_resync_secs",
        ),
        *("prefill_selector", "decode_selector", "bootstrap_port_annotation", "pod_deletion_cost"),
        *("prefill_dns", "prefill_srv", "decode_dns", "decode_srv"),
    }
    assert set(RouterArgs().server_options()) - logging - sources <= set(Server.option_names)


def test_settings_are_a_plain_dataclass_that_frameworks_may_change() -> None:
    args = RouterArgs()
    args.port = 8080
    assert dataclasses.replace(args, policy="random").port == 8080


def test_it_is_imported_without_packages() -> None:
    code = (
        "import sys, vllm_router.router_args, vllm_router.launch_router as l;"
        "l.parse_router_args(['--policy', 'random']);"
        "bad = [m for m in ('numpy', 'yaml', 'rich') if m in sys.modules];"
        "sys.exit(f'imported: {bad}' if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_version_is_the_project_s() -> None:
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert version[1] == __version__


def test_bodies_may_have_a_quarter_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for gib, mib in ((64, 16 * 1024), (0.5, 256)):
        monkeypatch.setattr("vllm_router.settings.args.available_memory", lambda gib=gib: int(gib * 2**30))
        assert RouterArgs().server_options()["body_memory_mb"] == mib
    assert RouterArgs(body_memory_mb=64).server_options()["body_memory_mb"] == 64
