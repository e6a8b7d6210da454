"""Checks of settings together: what fits, what has no effect, and what the core gets.

    check_policy_options({"policy": "cache_aware"})    the options of `Router(**options)`, complete
    check_server_names(["port"])                       that `Router.serve(port=…)` takes them
    check_settings(args), warnings_about(args)         of a whole RouterArgs

A single value is checked by its kind (`kinds.py`).
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from vllm_router._messages import show
from vllm_router.errors import UnusedOptionWarning
from vllm_router.settings.connectors import NEVER_ALONE, REGISTERING
from vllm_router.settings.kinds import Text, Unfit
from vllm_router.settings.names import FLAGS, POLICY_OPTIONS, SPELLINGS, unknown_name, warn_of_former_name
from vllm_router.settings.policies import (
    DEFAULT_POLICY,
    FORMER_DEFAULT_POLICY,
    LOGIT_POLICIES,
    PREFIX_POLICIES,
)
from vllm_router.settings.programs import check_programs, unread_members
from vllm_router.settings.response_cache import MAX_MEMORY_SHARE, has_an_ambiguous_prefix, is_shared
from vllm_router.settings.urls import worker_url

if TYPE_CHECKING:
    from vllm_router.settings.args import RouterArgs

logger = logging.getLogger("vllm_router")

# Settings that name a source of workers, of which the fleet may be empty at first.
_OF_DNS = ("worker_dns", "worker_srv", "prefill_dns", "prefill_srv", "decode_dns", "decode_srv")
SOURCES = ("worker_file", "service_discovery", *_OF_DNS)

# Settings of --service-discovery.
_OF_KUBERNETES = (
    "selector",
    "prefill_selector",
    "decode_selector",
    "bootstrap_port_annotation",
    "service_discovery_port",
    "service_discovery_namespace",
    "service_discovery_service",
    "inference_pool",
    "kubeconfig",
    "kube_context",
    "pod_deletion_cost",
    "discovery_resync_secs",
)

# Settings of --vllm-pd-disaggregation.
_OF_STAGES = (
    "prefill_urls",
    "decode_urls",
    "prefill_selector",
    "decode_selector",
    "bootstrap_port_annotation",
    "prefill_dns",
    "prefill_srv",
    "decode_dns",
    "decode_srv",
    "prefill_policy",
    "decode_policy",
    "prefill_data_parallel_size",
    "decode_data_parallel_size",
    "vllm_discovery_address",
    "vllm_discovery_allow",
    "discovery_forget_secs",
    "kv_connector",
    "bootstrap_port",
    *(
        name
        for name in FLAGS
        if name.startswith("pd_") and name not in ("pd_kv_events", "pd_strip_client_params")
    ),
)

# Options whose default is the policy's own.
OWN_DEFAULTS = ("virtual_nodes", "prefix_load_floor")


def _warn(sentence: str) -> None:
    # Past this function and check_policy_options, to the line that called it.
    warnings.warn(sentence, UnusedOptionWarning, stacklevel=3)


def check_policy_options(options: Mapping[str, Any], warn: Callable[[str], None] = _warn) -> dict[str, Any]:
    """The options of `Router(**options)`, checked and complete.

    Args:
        options: by field name; `policy` and `seed` may be among them. Accepted aliases count too.
        warn: hears of options that the policy does not read; they are accepted, since scripts share them.

    Returns:
        Every routing option that is built, in canonical form: `policy` without aliases, `hash_load_factor` 0
        or 1.0 to 10.0, `seed` None or 0 to 2^64-1, `virtual_nodes` and `prefix_load_floor` the policy's own
        where they were None.
        `consistent_hash_compat` has set what it implies.

    Raises:
        TypeError: an unknown name, with the nearest known one; or a setting of the server.
        ValueError: a value out of range, or one whose function is not implemented yet.
    """
    given: dict[str, Any] = {}
    for name, value in options.items():
        spelling = SPELLINGS.get(name)
        if spelling is None:
            if name in ("worker_url", "workers", "urls"):
                raise TypeError(f"{name} is not a known setting; did you mean worker_urls?")
            raise TypeError(unknown_name(name, POLICY_OPTIONS))
        flag = spelling.flag
        if spelling.alias and spelling.alias.former:
            warn_of_former_name(name, flag.field)
        if flag.field not in POLICY_OPTIONS:
            raise TypeError(
                f"{name} is not an option of Router but of the server; RouterArgs and Router.serve() take it"
            )
        if flag.field in given:
            raise TypeError(f"{name} sets {flag.field} a second time; keep one of them")
        flag.check_built(value)
        given[flag.field] = flag.check(value)
    if given.get("policy") is None:
        given["policy"] = default_policy(given)
    for sentence in _unread_options(given):
        warn(sentence)
    complete = {
        name: given.get(
            name, [*FLAGS[name].default] if isinstance(FLAGS[name].default, list) else FLAGS[name].default
        )
        for name in POLICY_OPTIONS
        if FLAGS[name].not_built is None
    }
    if complete["virtual_nodes"] is None:
        complete["virtual_nodes"] = 150 if complete["policy"] in (*PREFIX_POLICIES, "prefix_hash") else 160
    if complete["prefix_load_floor"] is None:
        # The bound "average" is there for its formula, which a floor would change.
        own = 4 if complete["policy"] in PREFIX_POLICIES else 8
        complete["prefix_load_floor"] = 0 if complete["load_bound"] == "average" else own
    if complete["consistent_hash_compat"]:
        complete["hash_key_order"] = "reference"
        complete["session_header_aliases"] = False
        complete["hash_key_fallback"] = "body"
    return complete


def check_server_names(names: Iterable[str]) -> None:
    """That all are names which `Router.serve(**options)` takes.

    Raises:
        TypeError: an unknown name, with the nearest known one; or a setting of the routing itself, which is
            fixed when the router is made.
    """
    for name in names:
        if name not in FLAGS:
            raise TypeError(
                unknown_name(name, [known for known, flag in FLAGS.items() if flag.scope == "server"])
            )
        if name == "worker_urls" or name in POLICY_OPTIONS:
            raise TypeError(f"{name} is not an option of serve() but of Router; pass it to Router()")


def default_policy(given: Iterable[str]) -> str:
    """The policy where none is named. cache_aware was it, so a setting of cache_aware still chooses it."""
    own = [
        FLAGS[name].spelling
        for name in given
        if FORMER_DEFAULT_POLICY in FLAGS[name].policies and DEFAULT_POLICY not in FLAGS[name].policies
    ]
    if not own:
        return DEFAULT_POLICY
    logger.warning(
        "policy %s is chosen because of %s; set --policy %s to keep it, or remove that option to get the "
        "default, %s",
        FORMER_DEFAULT_POLICY,
        ", ".join(own),
        FORMER_DEFAULT_POLICY,
        DEFAULT_POLICY,
    )
    return FORMER_DEFAULT_POLICY


def _unread_options(options: Mapping[str, Any]) -> list[str]:
    """Sentences about options that the chosen policies do not read."""
    policies = _policies_of(options)
    which = f"policy {policies[0]}" if len(policies) == 1 else f"policies {' and '.join(policies)}"
    return [
        f"{name} has no effect on the {which}; it belongs to {' and '.join(FLAGS[name].policies)}"
        for name, value in options.items()
        if FLAGS[name].policies
        and not set(policies) & set(FLAGS[name].policies)
        and not FLAGS[name].is_default(value)
    ]


def _policies_of(options: Mapping[str, Any]) -> list[str]:
    """The policy, or those of the two stages."""
    policy = FLAGS["policy"].check(options["policy"])
    if not has_stages(options):
        return [policy]
    named = [FLAGS[name].check(options.get(name)) or policy for name in ("prefill_policy", "decode_policy")]
    return list(dict.fromkeys(named))


def has_stages(options: Mapping[str, Any]) -> bool:
    """Whether a router with these options has prefill and decode workers."""
    return any(options.get(name) for name in ("vllm_pd_disaggregation", "prefill_urls", "decode_urls"))


def check_settings(args: RouterArgs, embedded: bool = False) -> None:
    """See RouterArgs._validate_router_args(). `embedded`: calls may add workers, so none need be named."""
    for name, flag in FLAGS.items():
        value = getattr(args, name)
        flag.check_built(value)
        flag.check(value)
    if args.client_api_key_file is not None and args.client_api_key_file == args.admin_api_key_file:
        raise ValueError(
            f"client_api_key_file and admin_api_key_file are both {args.client_api_key_file}, so every "
            "client could change the fleet; use a separate file for admins"
        )
    for cert, key in (
        ("tls_cert_path", "tls_key_path"),
        ("worker_cert_path", "worker_key_path"),
        ("peer_sync_cert_path", "peer_sync_key_path"),
        ("redis_cert_path", "redis_key_path"),
    ):
        if (getattr(args, cert) is None) != (getattr(args, key) is None):
            given, missing = (cert, key) if getattr(args, key) is None else (key, cert)
            raise ValueError(
                f"{given} is {getattr(args, given)} and {missing} is not set; a certificate and its key "
                "go together, so give both"
            )
    if has_stages(vars(args)) and args.admission_config is not None:
        raise ValueError(
            f"admission_config is {args.admission_config}, and the fleet has prefill and decode workers, for "
            "which priority classes are not implemented yet; remove admission_config"
        )
    has_programs = args.enable_program_scheduling or args.program_admission != "off"
    if has_programs and (has_stages(vars(args)) or args.epp_only):
        name = "program_admission" if args.program_admission != "off" else "enable_program_scheduling"
        why = (
            "epp_only, too, so that no request would be a program's: the endpoint picker knows none"
            if args.epp_only
            else "the fleet has prefill and decode workers, for which programs are not implemented yet"
        )
        raise ValueError(f"{name} is set and {why}; remove {name}")
    check_programs(vars(args))
    if args.epp_only and args.admission_config is not None:
        raise ValueError(
            f"admission_config is {args.admission_config} and epp_only is set, so that no request would have "
            "a class or a limit: the endpoint picker has neither; remove admission_config, or epp_only"
        )
    never_alone = args.kv_connector in NEVER_ALONE
    if has_stages(vars(args)) and never_alone and args.pd_bypass_uncached_tokens:
        raise ValueError(
            f"pd_bypass_uncached_tokens is {args.pd_bypass_uncached_tokens} and kv_connector is "
            f"{args.kv_connector}, whose decode workers cannot prefill by themselves; set "
            "pd_bypass_uncached_tokens to 0"
        )
    if args.peer_sync_admin and args.peer_sync is not None and args.peer_sync_secret_file is None:
        raise ValueError(
            "peer_sync_admin is set and peer_sync_secret_file is not: every client that can write to that "
            "Redis could add workers, which read prompts; set peer_sync_secret_file, or remove "
            "peer_sync_admin"
        )
    if args.tls_client_ca_file is not None and args.tls_cert_path is None:
        raise ValueError(
            f"tls_client_ca_file is {args.tls_client_ca_file}, and clients connect without TLS; set "
            "tls_cert_path and tls_key_path, too"
        )
    if args.record_log_salt_file is not None and (
        args.record_log is None
        or os.path.realpath(args.record_log) == os.path.realpath(args.record_log_salt_file)
    ):
        raise ValueError(
            f"record_log_salt_file is {args.record_log_salt_file}, and record_log is "
            f"{'not set' if args.record_log is None else 'the same'}; the salt belongs to a record "
            "log, and must be in a separate file"
        )
    for name in ("kv_events_push", "kv_events_bind"):
        if getattr(args, name) and args.kv_events == "off":
            raise ValueError(
                f"{name} is set, and kv_events is off, so events have no effect; set kv_events to auto"
            )
    for endpoint in args.kv_events_bind:
        if args.kv_events_bind.count(endpoint) > 1 and not endpoint.endswith(":*"):
            raise ValueError(
                f"kv_events_bind has {show(endpoint)} twice, and one socket listens there; leave one out"
            )
    if args.kv_events_engine != "auto" and args.kv_events == "off":
        raise ValueError(
            f"kv_events_engine is {args.kv_events_engine}, and kv_events is off, so events have no effect; "
            "set kv_events to auto"
        )
    for name in ("exclude_waiting_above", "exclude_kv_above"):
        if getattr(args, name) and args.load_poll_interval_secs == 0:
            raise ValueError(
                f"{name} is {getattr(args, name):g} and load_poll_interval_secs is 0, so that no worker "
                "tells its load; set load_poll_interval_secs to the seconds between two polls, or leave it "
                "out for 1"
            )
    _check_shared_cache(args)
    _check_response_cache(args)
    _check_stages(args, embedded)
    if args.health_check_endpoint[:1] != "/":
        raise ValueError(
            f"health_check_endpoint is {show(args.health_check_endpoint)}; it is a path and must start "
            "with /, as /health does"
        )
    if args.retry_max_backoff_ms < args.retry_initial_backoff_ms:
        raise ValueError(
            f"retry_max_backoff_ms is {args.retry_max_backoff_ms}; it is the maximum back-off and must "
            "not be below the initial one, retry_initial_backoff_ms, which is "
            f"{args.retry_initial_backoff_ms}"
        )
    if 0 < args.scale_max < args.scale_min:
        raise ValueError(
            f"scale_max is {args.scale_max}; it is the maximum number of replicas and must not be below the "
            f"minimum, scale_min, which is {args.scale_min}"
        )
    if args.dns_max_secs < args.dns_min_secs:
        raise ValueError(
            f"dns_max_secs is {args.dns_max_secs:g}; it is the maximum time between two queries and must not "
            f"be below the minimum, dns_min_secs, which is {args.dns_min_secs:g}"
        )
    if args.service_discovery and not args.vllm_pd_disaggregation:
        _check_pods(args)
    if args.pod_deletion_cost and args.service_discovery and args.service_discovery_service is not None:
        raise ValueError(
            f"pod_deletion_cost is set, and service_discovery_service is {args.service_discovery_service}: "
            "the router sees its endpoints and no pods; set selector instead, or remove pod_deletion_cost"
        )


def _check_pods(args: RouterArgs) -> None:
    names = ("selector", "service_discovery_service", "inference_pool")
    given = [name for name in names if getattr(args, name)]
    if len(given) != 1:
        found = f"{' and '.join(given)} are" if given else f"none of {', '.join(names[:2])} and {names[2]} is"
        raise ValueError(
            f"service_discovery is on, and {found} set; set selector to the labels of the workers' pods, "
            "such as app=vllm, service_discovery_service to the name of a Service, or inference_pool to that "
            "of an InferencePool"
        )
    namespaces = args.service_discovery_namespace or []
    if args.inference_pool and len([namespaces] if isinstance(namespaces, str) else namespaces) != 1:
        raise ValueError(
            f"inference_pool is {args.inference_pool}, and service_discovery_namespace is "
            f"{show(args.service_discovery_namespace)}; a pool and its pods are in one namespace: name it"
        )


def _check_stages(args: RouterArgs, embedded: bool) -> None:
    for name in ("prefill_urls", "decode_urls"):
        for row in getattr(args, name) or ():
            url = row if isinstance(row, str) else row[0]
            try:
                worker_url(url)
            except Unfit as unfit:
                raise ValueError(FLAGS[name].complaint([url], unfit)) from None
    if args.kv_connector in REGISTERING and args.vllm_discovery_address is None:
        raise ValueError(
            f"kv_connector is {args.kv_connector}, whose workers register with the router; set "
            "vllm_discovery_address to the HOST:PORT where they do"
        )
    if not args.vllm_pd_disaggregation:
        return
    for name in ("worker_dns", "worker_srv"):
        if getattr(args, name):
            raise ValueError(
                f"{name} is set, and vllm_pd_disaggregation is on: it does not tell prefill from decode "
                f"workers; name them with {name.replace('worker', 'prefill')} and "
                f"{name.replace('worker', 'decode')}, or in a --worker-file with worker_type"
            )
    for name in ("dns", "srv"):
        both = set(getattr(args, f"prefill_{name}")) & set(getattr(args, f"decode_{name}"))
        if both:
            raise ValueError(
                f"prefill_{name} and decode_{name} both have {show(min(both))}, so its workers would be of "
                "both stages; name it in one of them"
            )
    if args.service_discovery:
        _check_stage_selectors(args)
    if args.worker_file is not None or args.vllm_discovery_address is not None or embedded:
        return
    missing = [stage for stage in ("prefill", "decode") if not _has_source(args, stage)]
    if len(missing) == 2:
        raise ValueError(
            "PD disaggregation mode requires --prefill and --decode, --vllm-discovery-address, or "
            "--service-discovery with --prefill-selector and --decode-selector; --prefill-dns and "
            "--decode-dns, or a --worker-file with workers of both types"
        )
    for stage in missing:
        raise ValueError(f"PD disaggregation mode requires --{stage}, or another source of {stage} workers")


def _has_source(args: RouterArgs, stage: str) -> bool:
    discovered = args.service_discovery and getattr(args, f"{stage}_selector")
    named = any(getattr(args, f"{stage}_{source}") for source in ("urls", "dns", "srv"))
    return bool(named or discovered)


def _check_stage_selectors(args: RouterArgs) -> None:
    if args.service_discovery_service is not None:
        raise ValueError(
            f"service_discovery_service is {args.service_discovery_service}, and vllm_pd_disaggregation is "
            "on: endpoints do not tell prefill from decode workers; set prefill_selector and decode_selector "
            "instead"
        )
    if args.inference_pool is not None:
        raise ValueError(
            f"inference_pool is {args.inference_pool}, and vllm_pd_disaggregation is on: a pool does not "
            "tell prefill from decode workers; set prefill_selector and decode_selector instead"
        )
    if not args.prefill_selector and not args.decode_selector:
        raise ValueError(
            "service_discovery is on, and neither of prefill_selector and decode_selector is set; "
            "with vllm_pd_disaggregation set both, such as {role: prefill} and {role: decode}"
        )
    if args.prefill_selector == args.decode_selector:
        raise ValueError(
            f"prefill_selector and decode_selector are both {show(args.prefill_selector)}, so each pod would "
            "be of both stages; name a label in each that tells them apart, such as role=prefill"
        )


def _check_shared_cache(args: RouterArgs) -> None:
    if FLAGS["shared_cache_type"].check(args.shared_cache_type) == "none":
        for name in ("shared_cache_url", "shared_cache_layout"):
            if getattr(args, name):
                raise ValueError(
                    f"{name} is set, and shared_cache_type is none, so no pool is queried; set "
                    "shared_cache_type to hicache, or remove it"
                )
        return
    policy = FLAGS["policy"].check(args.policy)
    if args.vllm_pd_disaggregation:
        policy = FLAGS["prefill_policy"].check(args.prefill_policy) or policy
    if policy not in LOGIT_POLICIES:
        raise ValueError(
            f"shared_cache_type is {args.shared_cache_type}, and the policy {policy} does not read the pool; "
            "set policy to kv_logit"
        )


def _check_response_cache(args: RouterArgs) -> None:
    if not args.response_cache:
        return
    in_redis = FLAGS["response_cache_backend"].check(args.response_cache_backend) == "redis"
    if in_redis and args.redis_url is None:
        raise ValueError(
            "response_cache_backend is redis and redis_url is missing (in a file: response_cache.redis.url); "
            "write for example redis://localhost:6379"
        )
    if in_redis and args.response_cache_lookup_budget_ms > args.redis_command_timeout_ms:
        raise ValueError(
            f"response_cache_lookup_budget_ms is {args.response_cache_lookup_budget_ms}; it is the maximum "
            "time for which a request waits for Redis and must not be above redis_command_timeout_ms, which "
            f"is {args.redis_command_timeout_ms}"
        )
    for name in ("response_cache_max_response_size", "response_cache_max_stream_buffer_size"):
        size, memory = getattr(args, name), args.response_cache_max_memory_bytes
        if not in_redis and size > memory // MAX_MEMORY_SHARE:
            raise ValueError(
                f"{name} is {size}; it must not be above a quarter of response_cache_max_memory_bytes, which "
                f"is {memory}; raise that, or lower it: such a response could never be stored"
            )
        if size > args.response_cache_capture_memory_bytes:
            raise ValueError(
                f"{name} is {size}; it must not be above response_cache_capture_memory_bytes, which is "
                f"{args.response_cache_capture_memory_bytes}; raise that, or lower it: such a response could "
                "never be stored"
            )
    source = FLAGS["response_cache_tenant_source"].check(args.response_cache_tenant_source)
    if source in ("header", "header_credential") and args.response_cache_tenant_header is None:
        raise ValueError(
            f"response_cache_tenant_source is {source} and response_cache_tenant_header is not set; name the "
            "header that your gateway sets, or use response_cache_tenant_source credential"
        )


def warnings_about(args: RouterArgs) -> list[str]:
    """See RouterArgs.warnings()."""
    read = () if args.record_log is None else ("block_size", "routing_text_limit")  # by the record log
    sentences = _unread_options({name: getattr(args, name) for name in POLICY_OPTIONS if name not in read})
    if args.dp_aware and args.intra_node_data_parallel_size == 1:
        sentences.append(
            "--dp-aware has no effect by itself; --intra-node-data-parallel-size sets the number of "
            "ranks per URL"
        )
    sentences += [
        f"{flag.spelling} has no effect: {flag.no_effect}"
        for name, flag in FLAGS.items()
        if flag.no_effect and isinstance(flag.kind, Text) and getattr(args, name) is not None
    ]
    policy = FLAGS["policy"].check(args.policy)
    if args.allow_request_overrides and policy not in ("kv_logit", "kv_aware"):
        sentences.append(
            f"--allow-request-overrides has no effect on the policy {policy or DEFAULT_POLICY}; it belongs "
            "to kv_logit and kv_aware"
        )
    if args.tenant_header is not None and args.client_api_key_file is None and not args.trusted_addresses:
        sentences.append(
            f"--tenant-header {args.tenant_header} counts from no client; name the gateways in "
            "--trusted-addresses, or give their keys the attribute trusted in --client-api-key-file"
        )
    if args.epp_port is not None and args.admission_config is not None:
        sentences.append(
            "--admission-config has no effect on requests whose workers are picked by --epp-port: they have "
            "neither classes nor limits of tenants"
        )
    has_programs = args.enable_program_scheduling or args.program_admission != "off"
    if args.program_scheduling_config_json is not None and not has_programs:
        sentences.append(
            "--program-scheduling-config-json has no effect while programs are off; add "
            "--enable-program-scheduling"
        )
    if unread := unread_members(vars(args)):
        sentences.append(
            f"--program-scheduling-config-json has {', '.join(unread)}, which change nothing here: programs "
            "wait in the order in which they began, and the router works out the rest"
        )
    sentences += [
        f"--trusted-addresses {text} is every address, so every client can claim any tenant and priority "
        "class; name the gateways alone"
        for text in args.trusted_addresses
        if text.endswith("/0")
    ]
    clients_need_keys = args.client_api_key_file is not None or args.api_key_validation_urls
    if clients_need_keys and args.admin_api_key_file is None and args.admin_port is None:
        sentences.append(
            "clients need API keys and no admin keys are set, so admin endpoints are closed; open them "
            "with --admin-api-key-file or --admin-port"
        )
    elif args.admin_api_key_file is None:
        flag, host = ("--host", args.host) if args.admin_port is None else ("--admin-host", args.admin_host)
        if not _is_loopback(host):
            sentences.append(
                f"{flag} {host} is not a loopback address, and admin endpoints need no key: every "
                "client that can reach the port can add and remove workers; set --admin-api-key-file, "
                "or " + ("--admin-port" if flag == "--host" else "--admin-host 127.0.0.1")
            )
    if args.shared_cache_type == "none":
        if args.shared_cache_multiplier:
            sentences.append(
                "shared_cache_multiplier has no effect without a pool to query; set --shared-cache-type "
                "hicache"
            )
    elif not args.shared_cache_multiplier and not args.allow_request_overrides:
        sentences.append(
            "shared_cache_multiplier is 0, so the shared pool is queried for the metrics alone; typical "
            "values are 0.3 to 0.7"
        )
    if args.worker_tls_insecure:
        sentences.append(
            "--worker-tls-insecure: worker certificates are not verified, so connections can be "
            "intercepted; to trust your own CA, use --worker-ca-file"
        )
    if args.model_wait_secs and args.queue_size == 0:
        sentences.append(
            "--model-wait-secs has no effect with --queue-size 0, the number of requests that may wait"
        )
    if args.lora_spread and args.model_refresh_secs == 0:
        sentences.append(
            "--lora-spread has no effect with --model-refresh-secs 0: workers are not polled for models, so "
            "no adapter has a parent"
        )
    if args.redis_url is not None and "redis" not in (args.kv_index_backend, args.response_cache_backend):
        sentences.append(
            "--redis-url has no effect without --kv-index-backend redis or --response-cache-backend redis"
        )
    if not args.enable_trace:
        sentences += [
            f"{FLAGS[name].spelling} has no effect without --enable-trace"
            for name in ("otlp_traces_endpoint", "otel_service_name")
            if getattr(args, name) is not None
        ]
    sentences += _about_response_cache(args)
    sentences += _about_continued_streams(args)
    if args.peer_sync is None:
        sentences += [
            f"{FLAGS[name].spelling} has no effect without --peer-sync"
            for name in (*(name for name in FLAGS if name.startswith("peer_sync_")), "rate_limit_scope")
            if not FLAGS[name].is_default(getattr(args, name))
            and not (name == "peer_sync_fleet" and is_shared(args))
        ]
    elif args.peer_sync_secret_file is None:
        sentences.append(
            "--peer-sync without --peer-sync-secret-file: every client that can write to that Redis can tell "
            "this router anything about the others, and one that can read there sees hashes of prompts"
        )
    if args.kv_index_max_entries == 0:
        sentences += [
            f"{FLAGS[name].spelling} {getattr(args, name)} has no effect without --kv-index-max-entries"
            for name in ("kv_index_backend", "kv_index_ttl_secs", "kv_storage_offloading")
            if not FLAGS[name].is_default(getattr(args, name))
        ]
    if not any(getattr(args, name) for name in _OF_DNS):
        sentences += [
            f"{FLAGS[name].spelling} has no effect without --worker-dns or --worker-srv"
            for name in ("dns_server", "dns_min_secs", "dns_max_secs")
            if not FLAGS[name].is_default(getattr(args, name))
        ]
    if not args.service_discovery:
        sentences += [
            f"{FLAGS[name].spelling} has no effect without --service-discovery"
            for name in _OF_KUBERNETES
            if not FLAGS[name].is_default(getattr(args, name))
        ]
    elif args.inference_pool and not FLAGS["service_discovery_port"].is_default(args.service_discovery_port):
        sentences.append(
            "--service-discovery-port has no effect with --inference-pool, which says the ports of its pods"
        )
    found = any(getattr(args, name) for name in SOURCES)
    alone = not found and len(args.worker_urls) == args.intra_node_data_parallel_size == 1
    if alone and FLAGS["policy"].check(args.policy) == "power_of_two":
        sentences.append("power_of_two has nothing to choose between while there is only one worker")
    if args.vllm_pd_disaggregation:
        if args.worker_urls:
            sentences.append(
                f"--worker-urls has no effect with --vllm-pd-disaggregation: {len(args.worker_urls)} URLs "
                "are ignored; --prefill and --decode name the workers"
            )
        sentences += _about_registration(args)
        if args.service_discovery and args.selector:
            sentences.append(
                "--selector has no effect with --vllm-pd-disaggregation: --prefill-selector and "
                "--decode-selector name the pods"
            )
    else:
        sentences += [
            f"{FLAGS[name].spelling} has no effect without --vllm-pd-disaggregation"
            for name in _OF_STAGES
            if not FLAGS[name].is_default(getattr(args, name))
        ]
    if not args.worker_urls and not found and not args.vllm_pd_disaggregation:
        sentences.append(
            "no worker URLs are given: requests get 503 until POST /add_worker?url=http://host:8000 adds one"
        )
    return sentences


def _about_continued_streams(args: RouterArgs) -> list[str]:
    streams = FLAGS["continue_streams"].check(args.continue_streams)
    needed = dict.fromkeys(("continue_rerun_tokens", "continue_max_tokens"), "tokens")
    if streams == "off":
        names = ("max", "memory_mb", "keepalive_secs", "wait_secs", "drain_secs", "stall_secs")
        needed |= dict.fromkeys([f"continue_{name}" for name in names], "verified")
    without_effect = [
        f"{FLAGS[name].spelling} has no effect without --continue-streams {word}"
        for name, word in needed.items()
        if streams != "tokens" and not FLAGS[name].is_default(getattr(args, name))
    ]
    if streams == "off" or without_effect:
        return without_effect
    if args.vllm_pd_disaggregation:
        return ["--continue-streams has no effect with --vllm-pd-disaggregation"]
    if args.disable_retries or args.retry_max_retries == 1:
        flag = "--disable-retries" if args.disable_retries else "--retry-max-retries 1"
        return [f"--continue-streams has no effect with {flag}, since a stream goes on by a retry"]
    return []


def _about_response_cache(args: RouterArgs) -> list[str]:
    given = [
        name
        for name, flag in FLAGS.items()
        if name.startswith("response_cache_") and not flag.is_default(getattr(args, name))
    ]
    if not args.response_cache:
        names = ", ".join(FLAGS[name].spelling for name in given)
        return [f"the response cache is off, so these have no effect: {names}"] if given else []
    sentences = []
    if args.response_cache_temperature_absent == "cache":
        sentences.append(
            "--response-cache-temperature-absent cache: unless the models' generation config is greedy, "
            "engines sample where no temperature is set, and one sample becomes the response to all equal "
            "requests; if in doubt, use bypass"
        )
    source = FLAGS["response_cache_tenant_source"].check(args.response_cache_tenant_source)
    if source == "shared":
        sentences.append(
            "--response-cache-tenant-source shared: every client gets responses that were made for others; "
            "with more than one tenant, use credential"
        )
    if source == "header":
        header = args.response_cache_tenant_header
        sentences.append(
            f"--response-cache-tenant-source header: clients that send the same {header} share responses, "
            "whatever their credentials; a gateway in front must set it and remove the client's own"
        )
    if source in ("credential", "shared") and args.response_cache_tenant_header is not None:
        sentences.append(
            f"--response-cache-tenant-header has no effect with --response-cache-tenant-source {source}"
        )
    if has_an_ambiguous_prefix(args):
        sentences.append(
            "the workers' URLs, from which keys of stored responses in Redis have their prefix, are "
            "addresses of this machine: a fleet of another machine may have the same; set "
            "--peer-sync-fleet to this one's name"
        )
    if args.response_cache_backend != "redis":
        sentences += [
            f"{FLAGS[name].spelling} has no effect without --response-cache-backend redis"
            for name in given
            if FLAGS[name].live == "restart" and name != "response_cache_backend"
        ]
    elif not args.response_cache_fallback_to_memory:
        sentences += [
            f"{FLAGS[name].spelling} has no effect with --no-response-cache-fallback-to-memory"
            for name in ("response_cache_fallback_capacity", "response_cache_fallback_ttl_secs")
            if name in given
        ]
    return sentences


def _about_registration(args: RouterArgs) -> list[str]:
    if args.vllm_discovery_address is None:
        return [
            f"{FLAGS[name].spelling} has no effect without --vllm-discovery-address"
            for name in ("vllm_discovery_allow", "discovery_forget_secs")
            if not FLAGS[name].is_default(getattr(args, name))
        ]
    sentences = [
        f"{FLAGS[name].spelling} has no effect with --vllm-discovery-address: "
        f"workers register, so these are ignored: {FLAGS[name].shown(getattr(args, name))}"
        for name in ("prefill_urls", "decode_urls")
        if getattr(args, name)
    ]
    host = args.vllm_discovery_address.rpartition(":")[0].strip("[]")
    if not args.vllm_discovery_allow and not _is_loopback(host):
        sentences.append(
            f"--vllm-discovery-address {args.vllm_discovery_address} is open to every process that reaches "
            "it, and a worker that registers gets clients' requests; name the workers' addresses with "
            "--vllm-discovery-allow"
        )
    return sentences


def _is_loopback(host: str) -> bool:
    host = host.removeprefix("[").removesuffix("]")
    return host == "localhost" or host == "::1" or host.startswith("127.")
