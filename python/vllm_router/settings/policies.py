"""The names of policies, what else they are called, which settings they read, and names of other routers.

They are the core's: each policy tells them in one place, beside its code (cpp/policy/policy_registry.h).
docs/reference/policies.md describes them.
"""

from __future__ import annotations

from vllm_router import _core
from vllm_router.settings.kinds import Choice

_POLICIES = _core.policies()

BUILT_POLICIES: tuple[str, ...] = tuple(one["name"] for one in _POLICIES)
DEFAULT_POLICY = "auto"
FORMER_DEFAULT_POLICY = "cache_aware"
BLOCK_POLICIES: tuple[str, ...] = tuple(one["name"] for one in _POLICIES if one["reads_index"])
POLICY_ALIASES: dict[str, str] = {alias: one["name"] for one in _POLICIES for alias in one["aliases"]}


def readers_of(setting: str) -> tuple[str, ...]:
    """The policies that have it among their options; none if all have it, or it is no policy's business."""
    readers = tuple(one["name"] for one in _POLICIES if setting in one["options"])
    return readers if readers != BUILT_POLICIES else ()


# What a setting that names a policy looks like, and one that names a policy for requests without a key.
POLICY = Choice(
    BUILT_POLICIES,
    aliases=POLICY_ALIASES,
    foreign={
        name: f"and its nearest here is {nearest}" for name, nearest in _core.foreign_policies().items()
    },
)
_FALLBACKS = tuple(one["name"] for one in _POLICIES if one["may_be_fallback"])
FALLBACK_POLICY = Choice(
    _FALLBACKS, aliases={alias: name for alias, name in POLICY_ALIASES.items() if name in _FALLBACKS}
)

# By what is special to them: a ring of sessions, a ring of prefixes, a pool of blocks that workers share, the
# text of a prompt.
HASH_POLICIES = readers_of("hash_function")
PREFIX_POLICIES = readers_of("load_factor_epsilon")
LOGIT_POLICIES = readers_of("router_temperature")
TEXT_POLICIES = ("prefix_hash", "cache_aware")
