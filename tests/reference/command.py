"""Cases: the command and its Python names, without any worker."""

# ruff: noqa: E501, since a case is one line and a row of a table, too
from __future__ import annotations

from tests.reference.cases import NOT_BUILT

API = "Command and Python"
STATUS_2 = "a mistake on the command line is status 2"
FUNCTIONS = "the function is " + NOT_BUILT
PROBE = """
import argparse, dataclasses, importlib, json
from vllm_router.launch_router import parse_router_args
from vllm_router.router_args import RouterArgs
parser = argparse.ArgumentParser()
RouterArgs.add_cli_args(parser)
flags = {action.option_strings[0]: [action.dest, action.default if not callable(action.default) else None, sorted(action.choices) if action.choices else None]
         for action in parser._actions if action.dest != "help"}
made = RouterArgs()
print(json.dumps({
    "flags": flags,
    "parsed": vars(parse_router_args([])),
    "fields": {f.name: getattr(made, f.name) for f in dataclasses.fields(RouterArgs)},
    "version": importlib.import_module("vllm_router").__version__,
    "types": [name for name in dir(importlib.import_module("vllm_router_rs").PolicyType) if name[0].isupper()],
}, default=str))
"""


def python_result(code: str) -> str:
    """A program that prints what `code` gives or raises, as one JSON text."""
    return f"import json\ntry:\n    {code}\nexcept Exception as error:\n    result = type(error).__name__\nprint(json.dumps(str(result)))"


PYTHON_CASES = (
    ("`from vllm_router_rs import PolicyType, Router`", "from vllm_router_rs import PolicyType, Router; result = 'there'", ""),
    ("`from vllm_router.router import Router, policy_from_str`", "from vllm_router.router import Router, policy_from_str; result = 'there'", ""),
    ("`from vllm_router.launch_router import Router, RouterArgs, launch_router, main, parse_router_args`", "from vllm_router.launch_router import Router, RouterArgs, launch_router, main, parse_router_args; result = 'there'", ""),
    ("`from vllm_router.mini_lb import MiniLoadBalancer`", "from vllm_router.mini_lb import MiniLoadBalancer; result = 'there'", ""),
    ("`vllm_router.version.__version__`", "from vllm_router.version import __version__; result = 'there'", ""),
    ("`policy_from_str` of every choice of `--policy` there", "from vllm_router.router import policy_from_str as p; result = ', '.join(str(p(n)).split('.')[-1] for n in ('random', 'round_robin', 'cache_aware', 'kv_aware', 'power_of_two', 'consistent_hash', 'sticky_least_loaded'))", ""),
    ("`policy_from_str('nonsense')`", "from vllm_router.router import policy_from_str as p; result = p('nonsense')", ""),
    ("`policy_from_str(None)`", "from vllm_router.router import policy_from_str as p; result = p(None)", ""),
    ("`RouterArgs._parse_selector(['a=b=c', 'd', 'a=e'])`", "from vllm_router.router_args import RouterArgs as R; result = R._parse_selector(['a=b=c', 'd', 'a=e'])", ""),
    ("`RouterArgs._parse_prefill_urls`: a port, `NONE`, neither", "from vllm_router.router_args import RouterArgs as R; result = R._parse_prefill_urls([['http://a', '9'], ['http://b', 'NONE'], ['http://c']])", ""),
    ("`RouterArgs._parse_prefill_urls` with a port that is no number", "from vllm_router.router_args import RouterArgs as R; result = R._parse_prefill_urls([['http://a', 'x']])", ""),
    ("`RouterArgs._parse_decode_urls`", "from vllm_router.router_args import RouterArgs as R; result = R._parse_decode_urls([['http://a'], ['http://b']])", ""),
    ("`RouterArgs(worker_urls=['nonsense'], port=70000)` itself", "from vllm_router.router_args import RouterArgs as R; result = R(worker_urls=['nonsense'], port=70000).port", ""),
    ("`RouterArgs(vllm_pd_disaggregation=True)._validate_router_args()`", "from vllm_router.router_args import RouterArgs as R; R(vllm_pd_disaggregation=True)._validate_router_args(); result = 'fits'", ""),
    ("`RouterArgs(…)._validate_router_args()` for prefill/decode with both kinds of URLs", "from vllm_router.router_args import RouterArgs as R; R(vllm_pd_disaggregation=True, prefill_urls=[('http://a', None)], decode_urls=['http://b'])._validate_router_args(); result = 'fits'", ""),
    ("`wasm_middleware_sha256` without `wasm_middleware`", "from vllm_router.router_args import RouterArgs as R; R(wasm_middleware_sha256='0')._validate_router_args(); result = 'fits'", ""),
    ("`Router(worker_urls=…, policy=PolicyType.RoundRobin, port=…)`", "from vllm_router.router import Router; from vllm_router_rs import PolicyType; Router(worker_urls=['http://a:1'], policy=PolicyType.RoundRobin, port=1234); result = 'made'", ""),
    ("`Router` with a misspelt keyword", "from vllm_router.router import Router; Router(worker_urls=['http://a:1'], prot=1); result = 'made'", ""),
    ("`Router.from_args(RouterArgs(…))`, `policy=\"kv_aware\"`", "from vllm_router.router import Router; from vllm_router.router_args import RouterArgs as R; Router.from_args(R(worker_urls=['http://a:1'], policy='kv_aware')); result = 'made'", ""),
    ("`vars(args)` after `Router.from_args(args)`: `policy`", "from vllm_router.router import Router; from vllm_router.router_args import RouterArgs as R; a = R(worker_urls=['http://a:1'], policy='random'); Router.from_args(a); result = type(a.policy).__name__", "the arguments stay as they were, and can be used again"),
    ("`--router-` prefix: `--router-policy random --worker-urls http://a:1`", "import argparse; from vllm_router.router_args import RouterArgs as R; q = argparse.ArgumentParser(); R.add_cli_args(q, use_router_prefix=True, exclude_host_port=True); a = R.from_cli_args(q.parse_args(['--router-policy', 'random', '--worker-urls', 'http://a:1']), use_router_prefix=True); result = (a.policy, a.worker_urls)", ""),
    ("a parser that has `--seed` and `--block-size` of its own", "import argparse; from vllm_router.router_args import RouterArgs as R; q = argparse.ArgumentParser(); q.add_argument('--seed'); q.add_argument('--block-size'); R.add_cli_args(q); result = 'no conflict'", ""),
)  # fmt: skip

COMMAND_CASES: tuple[tuple[str, list[str], str], ...] = (
    ("`--help`", ["--help"], ""),
    ("an unknown policy", ["--policy", "nonsense"], ""),
    ("an unknown flag", ["--nonsense"], ""),
    ("`--port nonsense`", ["--port", "nonsense"], ""),
    ("`--policy kv_aware`", ["--policy", "kv_aware"], ""),
    ("`--vllm-pd-disaggregation` alone", ["--vllm-pd-disaggregation"], STATUS_2),
    ("`--cache-threshold 1.5`", ["--cache-threshold", "1.5"], STATUS_2),
    ("`--worker-urls nonsense`", ["--worker-urls", "nonsense"], STATUS_2),
    ("`--max-tree-size 0`", ["--max-tree-size", "0"], STATUS_2),
    ("`--retry-max-backoff-ms 1` below the initial", ["--retry-max-backoff-ms", "1"], STATUS_2),
    (
        "`--policy power_of_two` with one worker",
        ["--policy", "power_of_two", "--worker-urls", "http://127.0.0.1:9"],
        "a fleet may grow; with one worker it serves",
    ),
    ("`--balance-rel-threshold 0.5`", ["--balance-rel-threshold", "0.5"], STATUS_2),
    ("`--eviction-interval-secs 0`", ["--eviction-interval-secs", "0"], STATUS_2),
    ("`--max-payload-size 0`", ["--max-payload-size", "0"], STATUS_2),
    ("`--request-timeout-secs 0`", ["--request-timeout-secs", "0"], STATUS_2),
    ("`--worker-startup-timeout-secs 0`", ["--worker-startup-timeout-secs", "0"], STATUS_2),
    ("`--retry-max-retries 0`", ["--retry-max-retries", "0"], STATUS_2),
    ("`--retry-backoff-multiplier 0.5`", ["--retry-backoff-multiplier", "0.5"], STATUS_2),
    ("`--retry-jitter-factor 1.5`", ["--retry-jitter-factor", "1.5"], STATUS_2),
    ("`--cb-failure-threshold 0`", ["--cb-failure-threshold", "0"], STATUS_2),
    (
        "`--health-check-timeout-secs 0`",
        ["--health-check-timeout-secs", "0"],
        STATUS_2 + "; with 0 every check fails",
    ),
    ("`--worker-urls grpc://127.0.0.1:9`", ["--worker-urls", "grpc://127.0.0.1:9"], FUNCTIONS),
    (
        "`--worker-urls` with http and grpc",
        ["--worker-urls", "http://127.0.0.1:9", "grpc://127.0.0.1:9"],
        STATUS_2,
    ),
    ("`--service-discovery` without `--selector`", ["--service-discovery"], STATUS_2),
    ("`--wasm-middleware-sha256` alone", ["--wasm-middleware-sha256", "0"], STATUS_2),
    ("`--mini-lb`", ["--mini-lb"], FUNCTIONS + "; there it needs prefill/decode"),
    ("no workers at all", [], ""),
)
