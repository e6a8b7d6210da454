"""RouterArgs against the tables of the C++ core: the same options, defaults, ranges and words.

Policies and the options that they read are the core's alone. Of these tables the settings have a copy, and
here the two are compared. Where they differ on purpose, the difference stands here with its reason.
"""

from __future__ import annotations

from tests.rows import for_each_row
from vllm_router import _core
from vllm_router import _core_testing as testing
from vllm_router.router_args import FLAGS
from vllm_router.settings.kinds import Choice, Number, Switch, Words

POLICY = testing.policy_options()
SERVER = testing.server_options()
CORE = {**POLICY, **testing.router_options(), **SERVER}
ARGS = {name: flag for name, flag in FLAGS.items() if flag.scope and flag.not_built is None}
BOTH = sorted(CORE.keys() & ARGS.keys())

ONLY_ARGS = {
    "worker_urls": "an argument of its own of the core's Router",
    **dict.fromkeys(
        ["vllm_pd_disaggregation", "prefill_urls", "decode_urls", "prefill_policy", "decode_policy"],
        "arguments of their own of the core's Router",
    ),
    "config_reload": "the server reads it, in Python",
    "enable_program_scheduling": "another word for program_admission",
    "program_scheduling_config_json": "the core gets its members with program_admission",
    "log_level": "set for the whole process, by configure_log()",
    "log_dir": "set for the whole process, by configure_log()",
    "log_format": "set for the whole process, by configure_log()",
}
FOLLOWED = "the source of workers reads it, in Python"
ONLY_ARGS |= dict.fromkeys(
    [
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
    ],
    FOLLOWED,
)
ONLY_CORE = {
    "access_log": "follows log_level; tests turn it off",
    "body_rate_window_secs": "fixed; tests use a shorter one",
    "hang_detection_min_secs": "fixed; tests use a shorter one",
}
OTHER_DEFAULTS = {
    "threads": "0 is as many as there are CPUs, up to 4",
    "body_memory_mb": "0 is a quarter of the memory",
}
WORDS_IN_PYTHON_ALONE = {
    "policy": "the settings ask the core",
    "fallback_policy": "the settings ask the core",
    "holdout_policy": "the hold-out checks it when the server starts",
    "program_admission": "the core gets it with the members of the file; the feature reads both",
    "tls_min_version": "a text that OpenSSL reads",
    "kv_connector": "the settings ask the core",
}
KINDS = {Switch: {"switch"}, Words: {"texts"}, Choice: {"word", "text"}}


def by_name(*differences):
    return [name for name in BOTH if not any(name in names for names in differences)]


def test_both_have_the_same_options():
    assert sorted(ARGS.keys() - CORE.keys()) == sorted(ONLY_ARGS)
    assert sorted(CORE.keys() - ARGS.keys()) == sorted(ONLY_CORE)
    assert sorted(name for name, flag in ARGS.items() if flag.scope == "server" and name in CORE) == sorted(
        SERVER.keys() - ONLY_CORE.keys()
    )


def test_what_may_change_is_what_the_server_can_change():
    settings = set(_core.Server.live_option_names) - ONLY_CORE.keys()
    assert {name for name in settings if ARGS[name].live == "restart"} == set()
    in_python = {"log_level", "worker_urls", "discovery_guard", "discovery_hold_secs"}
    assert {name for name, flag in ARGS.items() if flag.live != "restart" and not flag.no_effect} == (
        settings | in_python
    )


@for_each_row("name", BOTH)
def test_an_option_has_one_kind(name):
    kind = ARGS[name].kind
    if isinstance(kind, Number):
        assert CORE[name]["kind"] == ("count" if kind.whole else "real")
    else:
        assert CORE[name]["kind"] in KINDS.get(type(kind), {"text"})


@for_each_row("name", by_name(OTHER_DEFAULTS))
def test_an_option_has_one_default(name):
    if ARGS[name].default is not None:  # None leaves it to the core, or to the policy: see OWN_DEFAULTS
        assert CORE[name]["default"] == ARGS[name].default


@for_each_row("name", [name for name in BOTH if isinstance(ARGS[name].kind, Number)])
def test_an_option_has_one_range(name):
    # The server's ranges are RouterArgs' alone. A limit that the core lacks is one of sense, not of function.
    row, kind = CORE[name], ARGS[name].kind
    if row["min"] is not None:
        assert row["min"] == kind.low
        assert row["zero"] == bool(kind.zero)
    if row["max"] is not None:
        assert row["max"] == kind.high
    assert kind.high is None or kind.high <= row["largest"]


@for_each_row(
    "name", [name for name in by_name(WORDS_IN_PYTHON_ALONE) if isinstance(ARGS[name].kind, Choice)]
)
def test_an_option_has_one_set_of_words(name):
    kind = ARGS[name].kind
    assert sorted(CORE[name]["words"]) == sorted(kind.names)
    assert CORE[name]["not_built"] == list(kind.later)


def test_a_policy_reads_options_that_there_are():
    assert {name for entry in _core.policies() for name in entry["options"]} <= POLICY.keys()
