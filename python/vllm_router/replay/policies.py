"""Which policies are compared: names with options, as a person writes them.

    cache_aware                                   with its defaults
    cache_aware:cache_threshold=0.3,load_factor=2  with these
    cache_aware:cache_threshold=0.3|0.5|0.7       three of them, a sweep
    all, compare, everything                      the router's own, the comparison policies, both

Comparison policies (`compare_...`) are formulas of other routers, written down as they are published. They
exist in the replay only: the server does not know them.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from vllm_router._messages import did_you_mean, quoted
from vllm_router.replay import _engine
from vllm_router.replay.trace import TraceError
from vllm_router.settings.checks import OWN_DEFAULTS, check_policy_options
from vllm_router.settings.kinds import Choice, Unfit
from vllm_router.settings.names import FLAGS, POLICY_OPTIONS, present_name_of
from vllm_router.settings.policies import BLOCK_POLICIES, BUILT_POLICIES

# They are about bytes of requests, which a trace does not have, or are set by the replay itself.
_OF_REQUESTS = (
    "block_size",
    "consistent_hash_compat",
    "hash_key_fallback",
    "hash_key_headers",
    "hash_key_order",
    "intra_node_data_parallel_size",
    "max_prefix_length",
    "policy",
    "seed",
    "session_header_aliases",
    "tokenize",
    "worker_urls",
)

# Of the replay alone: the policy knows the caches by KV events so late, instead of by what it sent.
EVENTS_DELAY = "events_delay_s"
COMPARISON_OPTIONS = (EVENTS_DELAY, "max_blocks_per_worker")
MOST_OF_A_COMPARISON_OPTION = 1e9

# Which requests a decode worker serves alone.
OF_STAGES = ("pd_bypass_uncached_tokens", "pd_bypass_queued_tokens")

GROUPS = ("all", "compare", "everything")


@dataclasses.dataclass(frozen=True)
class PolicySpec:
    """One policy with the options that differ from its defaults."""

    name: str
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def label(self) -> str:
        """As it is written on the command line."""
        options = ",".join(f"{name}={_text(value)}" for name, value in self.options.items())
        return f"{self.name}:{options}" if options else self.name

    @property
    def comparison(self) -> bool:
        """Whether it exists in the replay only."""
        return self.name.startswith(_engine.COMPARISON_PREFIX)

    def check_stages(self, *, staged: Iterable[bool]) -> None:
        """Raises TraceError if some fleet is of another kind than this policy is for."""
        of_stages = next((name for name in self.options if name in OF_STAGES), None)
        if of_stages is not None and not all(staged):
            raise TraceError(
                f"{self.label} has {of_stages}, and a fleet without stages has no prefill to bypass; set "
                "--prefill and --decode"
            )
        if self.comparison and any(staged):
            raise TraceError(f"{self.name} chooses no pairs of workers; a fleet with stages has none of them")

    def as_core(self, block_size: int, cache_blocks: int, seed: int) -> dict[str, Any]:
        """The routing options, complete."""
        if self.comparison:
            return {**self.options, "policy": self.name, "seed": seed, "block_size": block_size}
        own: dict[str, Any] = {"block_size": block_size}
        if "max_blocks_per_worker" not in self.options:
            # An index of one's own is best as large as the caches that it follows; the server learns their
            # size from the workers or is told.
            own["max_blocks_per_worker"] = max(1, cache_blocks)
        own |= {"policy": self.name, "seed": seed, **self.options}
        replayed = {EVENTS_DELAY: own.pop(EVENTS_DELAY)} if EVENTS_DELAY in own else {}
        checked = check_policy_options(own, warn=lambda _: None)
        # Everything else is at its default there, too, but for defaults that depend on the policy.
        read = (name for name in OWN_DEFAULTS if self.name in FLAGS[name].policies)
        return {**{name: checked[name] for name in (*own, *read)}, **replayed}


def _text(value: object) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def parse_policies(words: Iterable[str]) -> list[PolicySpec]:
    """The policies that a command line names, each once, in their order.

    Raises:
        TraceError: a name or an option that there is not, or a value that does not fit.
    """
    specs: dict[str, PolicySpec] = {}
    for word in words:
        for spec in _parse(word.strip()):
            specs.setdefault(spec.label, spec)
    if not specs:
        raise TraceError("no policy is named; name one, or all")
    return list(specs.values())


def _parse(word: str) -> Iterable[PolicySpec]:
    name, colon, rest = word.partition(":")
    own = [PolicySpec(policy) for policy in BUILT_POLICIES]
    compared = [PolicySpec(policy) for policy in _engine.comparison_policies()]
    if name in GROUPS:
        if colon:
            raise TraceError(f"{word} gives options to {name}; options belong to one policy")
        return {"all": own, "compare": compared, "everything": own + compared}[name]
    name = _checked_name(name)
    options: dict[str, list[str]] = {}
    for pair in rest.split(",") if rest else ():
        key, equals, values = pair.partition("=")
        key = present_name_of(key.strip().replace("-", "_"))
        if not equals or not values:
            raise TraceError(f"{word} has {quoted(pair)}; an option must be name=value")
        if key in options:
            raise TraceError(f"{word} has {key} twice; keep one of them")
        options[key] = values.split("|")
    if name.startswith(_engine.COMPARISON_PREFIX):
        for option in options:
            if option not in COMPARISON_OPTIONS:
                raise TraceError(
                    f"{word}: {name} has no option {option}"
                    + did_you_mean(option, COMPARISON_OPTIONS, f"; it has {', '.join(COMPARISON_OPTIONS)}")
                )
        return [
            PolicySpec(name, {key: _number(word, key, text) for key, text in zip(options, row, strict=True)})
            for row in _product(options)
        ]
    _check_names(word, name, options)
    return [_checked(word, name, dict(zip(options, row, strict=True))) for row in _product(options)]


def _product(options: Mapping[str, list[str]]) -> Iterable[tuple[str, ...]]:
    return itertools.product(*options.values())


def _number(word: str, name: str, text: str) -> float:
    whole = name == "max_blocks_per_worker"
    try:
        number = int(text) if whole else float(text)
    except ValueError:
        number = -1
    if not (whole <= number <= MOST_OF_A_COMPARISON_OPTION):
        least = "a whole number, 1 or more" if whole else "a number, 0 or more"
        raise TraceError(f"{word}: {name} is {text}; it must be {least}")
    return number


def _checked_name(name: str) -> str:
    if name in _engine.comparison_policies():
        return name
    kind = FLAGS["policy"].kind
    assert isinstance(kind, Choice)
    try:
        return str(FLAGS["policy"].check(name))
    except ValueError as error:
        known = [*BUILT_POLICIES, *_engine.comparison_policies(), *GROUPS]
        if "is not implemented" in str(error):
            raise TraceError(str(error)) from None
        raise TraceError(
            f"policy is {quoted(name)}; it must be one of {', '.join(known)}" + did_you_mean(name, known)
        ) from None


def _check_names(word: str, policy: str, options: Iterable[str]) -> None:
    readable = [
        name
        for name, flag in FLAGS.items()
        if name in POLICY_OPTIONS
        and not flag.not_built
        and name not in _OF_REQUESTS
        and (not flag.policies or policy in flag.policies)
    ]
    if policy in BLOCK_POLICIES:
        readable.append(EVENTS_DELAY)
    for name in options:
        if name not in readable:
            raise TraceError(
                f"{word}: {policy} has no option {name}"
                + did_you_mean(name, readable, f"; it has {', '.join(readable)}" if readable else "")
            )


def _checked(word: str, policy: str, texts: Mapping[str, str]) -> PolicySpec:
    values: dict[str, Any] = {}
    replayed: dict[str, Any] = {}
    for name, text in texts.items():
        if name == EVENTS_DELAY:
            replayed[name] = _number(word, name, text)
            continue
        flag = FLAGS[name]
        try:
            parsed = text in ("1", "true", "on", "yes") if flag.can_be_denied else flag.kind.parse([text])
            values[name] = flag.check(parsed)
        except Unfit as unfit:
            limits = str(unfit) or flag.kind.limits
            raise TraceError(f"{word}: {name} is {text}; it must be {limits}") from None
        except ValueError as error:
            raise TraceError(f"{word}: {error}") from None
    spec = PolicySpec(policy, {**values, **replayed})
    try:
        check_policy_options({"policy": policy, **values}, warn=lambda _: None)
    except (TypeError, ValueError) as error:
        raise TraceError(f"{word}: {error}") from None
    return spec


def flags_of_policy(spec: PolicySpec) -> str:
    """The flags of the server that ask for this policy. It hears KV events where workers publish them."""
    words = [f"--policy {spec.name}"]
    for name, value in spec.options.items():
        if name == EVENTS_DELAY:
            continue
        flag = FLAGS[name]
        if isinstance(value, bool):
            words.append(flag.spelling if value else f"--no-{flag.spelling[2:]}")
        else:
            words.append(f"{flag.spelling} {_text(value)}")
    return " ".join(words)
