"""The names of policies, what else they are called, and those of other routers that are not here.

docs/reference/policies.md lists the canonical ones. The core has the same names in
`cpp/policy/policy_registry.cc`; a test compares them.
"""

from __future__ import annotations

from vllm_router.settings.kinds import Choice

BUILT_POLICIES = (
    "random",
    "round_robin",
    "least_load",
    "power_of_two",
    "consistent_hash",
    "rendezvous_hash",
    "vllm_cache_aware",
    "prefix_aware",
    "prefix_hash",
    "cache_aware",
    "auto",
    "sticky_least_loaded",
    "kv_logit",
    "kv_aware",
    "kv_overlap",
)
DEFAULT_POLICY = "auto"
FORMER_DEFAULT_POLICY = "cache_aware"
HASH_POLICIES = ("consistent_hash", "rendezvous_hash")
BLOCK_POLICIES = ("vllm_cache_aware", "auto", "kv_logit", "kv_aware", "kv_overlap")
HOLDER_POLICIES = ("vllm_cache_aware",)
LOGIT_POLICIES = ("kv_logit", "kv_aware")
PREFIX_POLICIES = ("prefix_aware", "kv_overlap")
SESSION_POLICIES = ("sticky_least_loaded",)
TEXT_POLICIES = ("prefix_hash", "cache_aware")

POLICY_ALIASES = {
    "least_loaded": "least_load",
    "least_request": "least_load",
    "consistent_hashing": "consistent_hash",
    "chwbl": "prefix_aware",
    "kv": "kv_logit",
    "manual": "sticky_least_loaded",
}
_NEAREST_AUTO = "and its nearest here is auto"
_FOREIGN_POLICIES = {
    "passthrough": "since with one worker every policy passes requests through",
    "bucket": "and its nearest here is least_load",
    "ttft_aware": _NEAREST_AUTO,
    "smetric": _NEAREST_AUTO,
    "precise_cache_aware": "and its nearest here is kv_overlap",
}

# What a setting that names a policy looks like.
POLICY = Choice(BUILT_POLICIES, aliases=POLICY_ALIASES, foreign=_FOREIGN_POLICIES)
