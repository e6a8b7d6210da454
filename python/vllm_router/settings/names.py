"""The names of settings: every flag by its field, by its other spellings and by its former names.

    FLAGS["virtual_nodes"].spelling        "--virtual-nodes"
    SPELLINGS["max_blocks_per_backend"]    the flag max_blocks_per_worker, and the alias
    present_name_of("spread_starts")       "spread_new_conversations", and the log says so
    unknown_name("polcy")                  "polcy is not a known setting; did you mean policy?"

All are made once, at import.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import NamedTuple

from vllm_router._messages import LONGEST_SHOWN_VALUE, did_you_mean
from vllm_router.settings.flag import Alias, Flag, flags_of
from vllm_router.settings.foreign_flags import KNOWN_ELSEWHERE
from vllm_router.settings.reference_flags import ReferenceTable
from vllm_router.settings.table import Table

logger = logging.getLogger("vllm_router")

FLAGS: dict[str, Flag] = flags_of(Table) | flags_of(ReferenceTable)

# What Router(policy, worker_urls, **options) takes: the fleet itself is an argument of its own there.
POLICY_OPTIONS = tuple(
    name for name, flag in FLAGS.items() if name != "worker_urls" and flag.scope == "routing"
)

# Flags share words, so those of other routers are like some flag here that means another thing: --redis-url
# is like --worker-urls (0.67), --ca-cert-path like --tls-cert-path (0.80). Typing errors are above this.
FLAG_SIMILARITY = 0.82


class Spelling(NamedTuple):
    """A name of a setting: the setting, and the alias if it is not its ordinary name."""

    flag: Flag
    alias: Alias | None


SPELLINGS: dict[str, Spelling] = {
    name: Spelling(flag, alias)
    for flag in FLAGS.values()
    for name, alias in [
        (flag.field, None),
        *((alias.name.replace("-", "_"), alias) for alias in flag.all_aliases),
        *([(flag.spelled, None)] if flag.spelled else []),
    ]
}


# Names of an earlier release, by which settings may be given until the next minor release.
FORMER_NAMES: dict[str, str] = {
    alias.name: flag.field for flag in FLAGS.values() for alias in flag.former_names
}


def present_name_of(name: str) -> str:
    """The name of a setting; a former name is replaced, and the log says so."""
    if name not in FORMER_NAMES:
        return name
    warn_of_former_name(name, FORMER_NAMES[name])
    return FORMER_NAMES[name]


def warn_of_former_name(former: str, present: str) -> None:
    """Log that a name of an earlier release was used, and the present one."""
    logger.warning("%s is deprecated and will be removed in the next minor release; use %s", former, present)


def unknown_name(name: str, known: Sequence[str] | None = None) -> str:
    """A sentence about a name that is no setting: what it may have meant, or that other routers have it."""
    name = name_only(name)
    plain = name.replace("-", "_")
    if len(name) > LONGEST_SHOWN_VALUE:
        return (
            f"a name of {len(name)} characters is not a known setting; docs/reference/cli.md lists them all"
        )
    if plain in KNOWN_ELSEWHERE:
        return f"{name} {KNOWN_ELSEWHERE[plain]}"
    return f"{name} is not a known setting" + suggestion(
        name, list(SPELLINGS) if known is None else known, "; docs/reference/cli.md lists them all"
    )


def suggestion(name: str, known: Sequence[str], otherwise: str) -> str:
    """`; did you mean …?`: what has all words of the name, if that is one thing, else what is very like it.

    A word that is left out is likelier than one that is misspelt: --tls-cert means --tls-cert-path.
    """
    words = set(re.findall(r"[a-z0-9]+", name.lower()))
    fuller = {
        other.replace("_", "-"): other
        for other in known
        if len(words) > 1 and words < set(re.findall(r"[a-z0-9]+", other.lower()))
    }
    if len(fuller) == 1:
        return f"; did you mean {fuller.popitem()[1]}?"
    return did_you_mean(name, known, otherwise, FLAG_SIMILARITY)


def name_only(name: str) -> str:
    """A name of a setting for a message; of `{api-key:SECRET}`, one name to YAML, the first half."""
    match = re.match(r"[\w.-]*", name)
    kept = match[0] if match else ""
    return name if kept == name else f"{kept}..."
