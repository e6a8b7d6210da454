"""Settings of the response cache: kinds of routes, members, headers, paths, key prefixes and durations.

    cached_route("/v1/completions")     as it is
    ignored_member("temperature")       raises Unfit, since it changes the response
    seconds_of("5m")                    300

Which routes and members there are the core says: cpp/response_cache/cacheability.h.
"""

from __future__ import annotations

# ruff: noqa: D102, since Kind says what its methods mean
import dataclasses
import hashlib
import re
from typing import TYPE_CHECKING

from vllm_router import _core
from vllm_router._messages import quoted
from vllm_router.settings.kinds import Text, Unfit, header_name

if TYPE_CHECKING:
    from vllm_router.settings.args import RouterArgs

CACHED_ROUTES: tuple[str, ...] = tuple(_core.cacheable_routes())
IGNORED_MEMBERS: tuple[str, ...] = tuple(_core.ignorable_members())
INVALIDATING_PATHS = (
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/load_lora_adapter",
    "/unload_lora_adapter",
    "/update_weights*",
    "/start_weight_update",
    "/finish_weight_update",
    "/start_draft_weight_update",
    "/resume_memory_occupation",
    "/wake_up",
    "/collective_rpc",
)
MAX_TTL_SECS = 30 * 86_400
MAX_MEMORY_SHARE = 4  # a quarter of the memory is the most that one response may take

# Of one connection, of one response, or of one client: a later one gets its own.
_NEVER_KEPT = {
    *("age", "connection", "content-encoding", "content-length", "content-type", "date", "keep-alive"),
    *(
        "set-cookie",
        "set-cookie2",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-cache",
        "x-request-id",
    ),
}
# Keys of the same Redis that are not the response cache's: of the prefix index, and of --peer-sync.
_OTHERS_KEYS = ("cr:kvidx:", "vr:")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def cached_route(path: str) -> str:
    """A route whose responses may be cached."""
    if path not in CACHED_ROUTES:
        raise Unfit(
            f"some of {', '.join(CACHED_ROUTES)}",
            path,
            "keeps state at a worker, or is not known to be deterministic",
        )
    return path


def ignored_member(name: str) -> str:
    """A member of a request's body that changes no response."""
    if name not in IGNORED_MEMBERS:
        raise Unfit(f"some of {', '.join(IGNORED_MEMBERS)}", name, "may change the response")
    return name


def kept_header(name: str) -> str:
    """The name of a header that may be kept with a response."""
    header_name(name)
    if name.lower() in _NEVER_KEPT or name.lower().startswith("proxy-"):
        raise Unfit(
            "names of headers that belong to every response of a request, such as x-model-version, and "
            f"{quoted(name)} belongs to one response, one client or one connection; remove it"
        )
    return name


def invalidating_path(path: str) -> str:
    """A path, or all that begin so; never all there are."""
    name = path.removesuffix("*")
    if not re.fullmatch(r"/[!-~]+", name) or re.search(r"[*?#%]", name):
        raise Unfit(
            "paths like /wake_up, or /update_weights* for all paths with that prefix, without a query, and "
            f"{quoted(path)} is none of these"
        )
    return path


def seconds_of(text: str) -> float | None:
    """The seconds of a duration such as 90s or 5m; None of any other text."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s?(ms|s|m|h|d)", text)
    if match is None:
        return None
    seconds = round(float(match[1]) * _UNITS[match[2]], 3)
    return int(seconds) if seconds.is_integer() else seconds


@dataclasses.dataclass(frozen=True)
class HeaderName(Text):
    """The name of a header."""

    metavar: str = "HEADER"

    @property
    def limits(self) -> str:
        return "the name of a header such as X-Tenant-ID"

    def check(self, value: object) -> str:
        name = super().check(value).strip()
        try:
            return header_name(name)
        except Unfit:
            raise Unfit from None


@dataclasses.dataclass(frozen=True)
class KeyPrefix(Text):
    """What keys in Redis begin with, which clearing matches by a pattern."""

    metavar: str = "PREFIX"

    @property
    def limits(self) -> str:
        return "1 to 64 visible ASCII characters such as cr:resp:"

    def check(self, value: object) -> str:
        prefix = super().check(value)
        if re.search(r"[*?\[\]\\]", prefix):
            raise Unfit(
                r"a text without the pattern characters * ? [ ] \, because clearing matches by it; write for "
                "example cr:resp:"
            )
        if not re.fullmatch(r"[!-~]{1,64}", prefix):
            raise Unfit
        if not self.is_own(prefix):
            raise Unfit(
                "the cache's own, because clearing would also remove keys that begin with "
                f"{' or '.join(_OTHERS_KEYS)}; write for example cr:resp:"
            )
        return prefix

    @staticmethod
    def is_own(prefix: str) -> bool:
        """Whether no key of another part of the router has it, and none with it is among theirs."""
        return not any(prefix.startswith(keys) or keys.startswith(prefix) for keys in _OTHERS_KEYS)


DEFAULT_PREFIX = "cr:resp:"
DEFAULT_FLEET = "default"


def key_prefix_of(args: RouterArgs) -> str | None:
    """The prefix of keys in Redis: what is given, else what tells the fleet from others with the same Redis.

    The fleet's name or, without one, its workers: a set, so the order in which routers of a fleet name them,
    and their ranks, do not matter. A reload changes nothing. None: no worker is named, so nothing tells.
    """
    if args.response_cache_redis_key_prefix != DEFAULT_PREFIX:
        return args.response_cache_redis_key_prefix
    if args.peer_sync_fleet != DEFAULT_FLEET:
        return f"{DEFAULT_PREFIX}{args.peer_sync_fleet}:"
    urls = _hosts_of(args)
    if not urls:
        return None
    return f"{DEFAULT_PREFIX}{hashlib.sha256(chr(10).join(urls).encode()).hexdigest()[:16]}:"


def is_shared(args: RouterArgs) -> bool:
    """Whether responses are kept where other routers find them."""
    return args.response_cache and args.response_cache_backend.strip().lower() == "redis"


def check_fleet_is_told(args: RouterArgs) -> None:
    """Raises ValueError where another fleet with the same Redis would share stored responses unnoticed."""
    if is_shared(args) and key_prefix_of(args) is None:
        raise ValueError(
            "response_cache_backend is redis, and no worker is named from which the keys in Redis could have "
            "their prefix: another fleet in this Redis would be sent this one's responses; set "
            "peer_sync_fleet to the fleet's name, the same on all its routers"
        )


def has_an_ambiguous_prefix(args: RouterArgs) -> bool:
    """Whether the prefix is made of addresses that mean other workers on another machine."""
    names_a_fleet = (
        args.response_cache_redis_key_prefix != DEFAULT_PREFIX or args.peer_sync_fleet != DEFAULT_FLEET
    )
    local = re.compile(r"https?://(?:127\.[0-9.]+|localhost|\[::1\]):")
    hosts = _hosts_of(args)
    return is_shared(args) and not names_a_fleet and bool(hosts) and all(map(local.match, hosts))


def _hosts_of(args: RouterArgs) -> list[str]:
    rows = (*args.worker_urls, *args.prefill_urls, *args.decode_urls)
    return sorted({_host_of(str(row if isinstance(row, str) else row[0])) for row in rows})


def _host_of(url: str) -> str:
    """A worker's URL as all its ranks have it, with its port."""
    match = re.fullmatch(
        r"(https?)://(\[[^\]]*\]|[^/:@]*)(?::([0-9]+))?(/[^@]*?)?/*(?:@[0-9]+)?/*", url, re.IGNORECASE
    )
    if match is None:
        return url
    scheme, host, port, path = match.groups()
    default = "443" if scheme.lower() == "https" else "80"
    return f"{scheme}://{host}:{port or default}".lower() + (path or "").rstrip("/")
