"""DnsSource: the workers are the addresses of DNS names (A, AAAA), or what SRV records name.

    router.follow(DnsSource(["http://vllm.svc:8000"]))
    router.follow(DnsSource(srv=["_http._tcp.vllm.svc"]))
    router.follow(DnsSource(srv=["vllm.service.consul"], server="127.0.0.1:8600"))      Consul
    router.follow(DnsSource(prefill_hosts=["http://p.svc:8000"], decode_srv=["_http._tcp.d.svc"]))

All names together are one list. What each lookup adds to it:

    records                        those; again after the shortest TTL +-10 %, within min_secs .. max_secs
    NXDOMAIN, no records           nothing, which is known: these workers have gone
    a response that tells nothing  as a failure: a referral, a CNAME loop or its end, records of another name
    timeout, SERVFAIL, REFUSED, …  what it found last, and all are looked up again after 1, 2, 5, 5, … s

So a failed lookup changes nothing by itself, and hides no change of another name. If it has never succeeded,
the list is declared as not complete, since its workers may be in the fleet because of an earlier source:
workers join, and none leaves. If all lookups failed, or nothing is known yet, look() raises SourceError.

A failure beside a list is raised by the look() after it, which follows at once and looks nothing up: when it
is new, and again each minute. A name or an SRV target that has no address (kind "no_address") is raised in
the same way, and once; the workers of the others stay.

A name that has A records is not looked up for AAAA records, since a worker with an address of each family
would be two workers. A query takes 4.5 s at most, and a look() about 30 s: names that failed come last, and
those for which there is no time count as failed. dnspython cannot interrupt a query, so close() ends a look()
within 4.5 s.
"""

from __future__ import annotations

import dataclasses
import importlib
import ipaddress
import math
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from vllm_router._messages import quoted, show
from vllm_router._secrets import described, shown_urls
from vllm_router.discovery.source import Listing, Source, SourceError, WorkerSpec

__all__ = ["DnsSource", "Found", "HostUrl", "Problem", "SrvRecord", "workers_of"]

_QUERY_SECS = 4.5  # below the 5 s that Follower.stop() waits
_SERVER_SECS = 1.5  # of it for each name server, so that the third of resolv.conf has its turn
_LOOK_SECS = 30.0
_EMPTY_TTL = 5.0  # of a name without records
_BACKOFF_SECS = (1.0, 2.0, 5.0)
_REPEAT_SECS = 60.0  # a failure beside a list is raised again after this
_MAX_SHOWN = 3  # names in a message
_UDP_BYTES = 1232  # fits into a packet everywhere; longer responses come by TCP

_HOST_URL = re.compile(
    r"http://(?P<name>[A-Za-z0-9_][A-Za-z0-9._-]*)(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<prefix>(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:/-]|%(?!00)[0-9A-Fa-f]{2})*)?)",
    re.IGNORECASE,
)
_SRV_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_RCODES = ("servfail", "refused", "formerr", "notimp", "notauth", "yxdomain")


class HostUrl(NamedTuple):
    """`http://name:port/prefix`, taken apart."""

    name: str
    """In lower case. With a dot at the end it is looked up as it is, without search domains."""
    port: int
    prefix: str


@dataclasses.dataclass(frozen=True, slots=True)
class SrvRecord:
    """An SRV record."""

    priority: int
    weight: int
    port: int
    target: str
    """In lower case, with a dot at the end."""


class Problem(NamedTuple):
    """Something that an operator should know, and that does not make the list wrong."""

    kind: str
    name: str
    message: str
    """What is wrong with the name."""


class Found(NamedTuple):
    """The workers that are known."""

    workers: list[WorkerSpec]
    complete: bool
    """Whether all lookups have found something, now or before."""
    problems: list[Problem]


def workers_of(
    hosts: Sequence[HostUrl],
    srv: Sequence[str],
    addresses: Mapping[str, Sequence[str]],
    services: Mapping[str, Sequence[SrvRecord]],
    worker_type: str = "regular",
) -> Found:
    """The list of workers from what was looked up; pure.

    The order of records makes no difference. A URL that comes twice is one worker, the first: hosts before
    services, each as they are given.

    Args:
        hosts: Each address of these names is a worker.
        srv: Names of services.
        addresses: By name of a host or target; without an entry it is not known.
        services: By name of a service, in the same way.
        worker_type: Of all workers.
    """
    workers: dict[str, WorkerSpec] = {}
    complete = True
    problems: dict[Problem, None] = {}
    for host in hosts:
        if host.name not in addresses:
            complete = False
            continue
        usable = _usable(addresses[host.name])
        if not usable:
            problems[_without_address(host.name)] = None
        for address in usable:
            url = f"http://{address}:{host.port}{host.prefix}"
            labels = {"name": host.name}
            workers.setdefault(url, WorkerSpec(url, worker_type=worker_type, labels=labels))
    for service in srv:
        if service not in services:
            complete = False
            continue
        records = chosen(services[service])
        if not records:
            problems[Problem("no_address", service, "has no SRV records with a target")] = None
        for record, weight in records:
            if record.target not in addresses:
                complete = False
                continue
            usable = _usable(addresses[record.target])
            if not usable:
                problems[_without_address(record.target)] = None
            for address in usable:
                url = f"http://{address}:{record.port}"
                labels = {"name": service, "target": record.target}
                spec = WorkerSpec(url, weight=weight, worker_type=worker_type, labels=labels)
                workers.setdefault(url, spec)
    return Found(list(workers.values()), complete, list(problems))


def together(parts: Sequence[Found]) -> Found:
    """The workers of several stages; one that is of two of them is left out, since a worker has one."""
    counts = Counter(spec.url for part in parts for spec in part.workers)
    both = [spec for part in parts for spec in part.workers if counts[spec.url] > 1]
    problems = [problem for part in parts for problem in part.problems]
    if both:
        names = dict.fromkeys(spec.labels["name"] for spec in both)
        urls = _listed([*dict.fromkeys(spec.url for spec in both)])
        problems.append(
            Problem(
                "both_stages",
                _listed([*names]),
                f"have workers of both stages, which are left out, since a worker has one: {urls}",
            )
        )
    workers = [spec for part in parts for spec in part.workers if counts[spec.url] == 1]
    return Found(workers, all(part.complete for part in parts), problems)


def chosen(records: Iterable[SrvRecord]) -> list[tuple[SrvRecord, float]]:
    """The records of the lowest priority in a fixed order, each with the weight of its worker."""
    # The target "." means that there is no such service (RFC 2782), and port 0 is none.
    usable = [record for record in records if record.target not in ("", ".") and record.port > 0]
    lowest = min((record.priority for record in usable), default=0)
    usable = [record for record in usable if record.priority == lowest]
    usable.sort(key=lambda record: (record.target, record.port, -record.weight))
    unweighted = all(record.weight == 0 for record in usable)
    return [(record, 1.0 if unweighted else _clamp(record.weight / 100, 0.01, 100)) for record in usable]


def _usable(addresses: Iterable[str]) -> list[str]:
    """As they stand in a URL, sorted, each once."""
    parsed = {ipaddress.ip_address(address) for address in addresses}
    # 0.0.0.0 is what filtering resolvers say of a blocked name; connections to it lead to this machine.
    usable = [address for address in parsed if not address.is_unspecified]
    usable.sort(key=lambda address: (address.version, int(address)))
    return [f"[{address}]" if address.version == 6 else str(address) for address in usable]


def _without_address(name: str) -> Problem:
    return Problem("no_address", name, "has no address (no A or AAAA records)")


def _clamp(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


class _Lookup(NamedTuple):
    what: str  # "addresses" or "srv"
    name: str


class _Reply(NamedTuple):
    records: tuple[Any, ...]  # addresses, or SrvRecord
    ttl: float


@dataclasses.dataclass
class _Round:
    """What one look() has looked up."""

    replies: dict[_Lookup, _Reply] = dataclasses.field(default_factory=dict)
    failures: dict[_Lookup, Problem] = dataclasses.field(default_factory=dict)

    def has(self, lookup: _Lookup) -> bool:
        return lookup in self.replies or lookup in self.failures


class DnsSource(Source):
    """The workers are the addresses of DNS names.

    Args:
        hosts: URLs such as `http://vllm.svc:8000`: each address of the name is a worker, at this port.
        srv: Names of SRV records such as `_http._tcp.vllm.svc`: targets of the lowest priority, with the
            weight of the record / 100.
        prefill_hosts: As `hosts`, of prefill workers in a fleet of two stages.
        prefill_srv: As `srv`, likewise.
        decode_hosts: As `hosts`, of decode workers.
        decode_srv: As `srv`, likewise.
        server: `IP[:port]` of the DNS server; None: as /etc/resolv.conf says, with its search domains.
        min_secs: The shortest time between two looks, whatever the TTL is.
        max_secs: The longest.
        randomness: For the +-10 % of that time; None: a new generator of random numbers.
        clock: Seconds.
        resolver: Makes the `dns.resolver.Resolver` of each look, in place of `server`.

    Raises:
        ImportError: dnspython is not installed; `pip install 'vllm-router[dns]'` installs it.
        TypeError, ValueError: a value that cannot be used.
    """

    name = "dns"

    def __init__(
        self,
        hosts: Sequence[str] = (),
        srv: Sequence[str] = (),
        *,
        prefill_hosts: Sequence[str] = (),
        prefill_srv: Sequence[str] = (),
        decode_hosts: Sequence[str] = (),
        decode_srv: Sequence[str] = (),
        server: str | None = None,
        min_secs: float = 1.0,
        max_secs: float = 30.0,
        randomness: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
        resolver: Callable[[], Any] | None = None,
    ) -> None:
        self._named = {
            worker_type: (
                [_parse_host(url) for url in _texts(f"{prefix}hosts", some)],
                [_parse_srv(name) for name in _texts(f"{prefix}srv", others)],
            )
            for worker_type, prefix, some, others in (
                ("regular", "", hosts, srv),
                ("prefill", "prefill_", prefill_hosts, prefill_srv),
                ("decode", "decode_", decode_hosts, decode_srv),
            )
        }
        self._hosts = [host for some, _ in self._named.values() for host in some]
        self._srv = [name for _, others in self._named.values() for name in others]
        if not self._hosts and not self._srv:
            raise ValueError("hosts and srv are empty; one of them must hold a name")
        self._min_secs = _seconds("min_secs", min_secs)
        self._max_secs = _seconds("max_secs", max_secs)
        if self._min_secs > self._max_secs:
            raise ValueError(f"min_secs is {min_secs}; it must be at most max_secs, {max_secs}")
        self._server = None if server is None else _parse_server(server)
        self._dns = _dnspython("--worker-dns" if self._hosts else "--worker-srv")
        for name in [*(host.name for host in self._hosts), *self._srv]:
            self._check_name(name)
        self._randomness = randomness or random.Random()
        self._clock = clock
        self._make_resolver = resolver or self._own_resolver
        self._closed = threading.Event()
        self._last: dict[_Lookup, _Reply] = {}
        self._turns: dict[_Lookup, tuple[float, float]] = {}  # when it last failed, and was last looked up
        self._failures = 0  # looks in a row with a failure
        self._reported: dict[Problem, float] = {}
        self._pending: list[SourceError] = []

    def look(self) -> Listing:
        """Look all names up.

        Raises:
            SourceError: all lookups failed, or something of the look before is to be reported.
        """
        self._check_open()
        if self._pending:
            raise self._pending.pop(0)
        turn = self._look_up_all()
        failures = list(turn.failures.values())
        self._failures = self._failures + 1 if failures else 0
        known: dict[str, dict[str, Any]] = {"addresses": {}, "srv": {}}
        for lookup, reply in self._last.items():
            known[lookup.what][lookup.name] = reply.records
        found = together(
            [
                workers_of(hosts, services, known["addresses"], known["srv"], worker_type)
                for worker_type, (hosts, services) in self._named.items()
            ]
        )
        if not turn.replies or (not found.complete and not found.workers):
            self._reported = {problem: self._clock() for problem in failures}
            self._report(failures, self._backoff())
            raise self._pending.pop(0)
        again_secs = self._backoff() if failures else self._pause(turn)
        self._report(self._to_report(failures, found.problems), again_secs)
        return Listing(found.workers, complete=found.complete, again_secs=0 if self._pending else again_secs)

    def close(self) -> None:
        """Make a look() raise SourceError, once its query has ended: within 4.5 s."""
        self._closed.set()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise SourceError("closed", "the source is closed")

    def _look_up_all(self) -> _Round:
        try:
            resolver = self._make_resolver()
        except self._dns.resolver.NoResolverConfiguration:
            self._failures += 1
            raise SourceError(
                "no_resolver",
                "/etc/resolv.conf cannot be read or names no server; name one with --dns-server",
                self._backoff(),
            ) from None
        turn = _Round()
        start = self._clock()
        names = [_Lookup("addresses", host.name) for host in self._hosts]
        services = [_Lookup("srv", name) for name in self._srv]
        # Names that fail leave time for targets.
        self._look_up(resolver, [*names, *services], turn, start + _LOOK_SECS / (2 if services else 1))
        replies = [turn.replies.get(lookup, self._last.get(lookup)) for lookup in dict.fromkeys(services)]
        targets = [
            _Lookup("addresses", record.target)
            for reply in replies
            if reply is not None
            for record, _ in chosen(reply.records)
        ]
        self._look_up(resolver, targets, turn, start + _LOOK_SECS)
        # A lookup that is not needed any more is forgotten.
        wanted = dict.fromkeys([*names, *services, *targets])
        known = {lookup: turn.replies.get(lookup, self._last.get(lookup)) for lookup in wanted}
        self._last = {lookup: reply for lookup, reply in known.items() if reply is not None}
        self._turns = {lookup: times for lookup, times in self._turns.items() if lookup in wanted}
        return turn

    def _look_up(self, resolver: Any, lookups: Iterable[_Lookup], turn: _Round, end: float) -> None:
        # What failed must not keep the others waiting; but one of each has its turn, however late it is.
        never = (-math.inf, -math.inf)
        had_turn: set[bool] = set()  # True: one that had failed
        for lookup in sorted(dict.fromkeys(lookups), key=lambda lookup: self._turns.get(lookup, never)):
            if turn.has(lookup):
                continue
            self._check_open()
            now = self._clock()
            had_failed = self._turns.get(lookup, never)[0] > -math.inf
            if now >= end and had_failed in had_turn:
                late = "was not looked up, since other names took too long"
                turn.failures[lookup] = Problem("timeout", lookup.name, late)
                continue
            had_turn.add(had_failed)
            try:
                if lookup.what == "srv":
                    turn.replies[lookup] = self._services(resolver, lookup.name)
                else:
                    turn.replies[lookup] = self._addresses(resolver, lookup.name)
                self._turns[lookup] = (-math.inf, now)
            except _MalformedError as error:
                turn.failures[lookup] = Problem("malformed", lookup.name, str(error))
                self._turns[lookup] = (now, now)
            except self._dns.exception.DNSException as error:
                turn.failures[lookup] = Problem(*_failure_of(self._dns, lookup.name, error))
                self._turns[lookup] = (now, now)

    def _addresses(self, resolver: Any, name: str) -> _Reply:
        records, ttl = self._query(resolver, name, "A")
        if not records and ttl is not None:
            self._check_open()
            records, ttl = self._query(resolver, name, "AAAA")
        addresses = tuple(record.address.partition("%")[0] for record in records)
        return _Reply(addresses, _EMPTY_TTL if ttl is None or not addresses else ttl)

    def _services(self, resolver: Any, name: str) -> _Reply:
        records, ttl = self._query(resolver, name, "SRV")
        services = tuple(
            SrvRecord(record.priority, record.weight, record.port, record.target.to_text().lower())
            for record in records
        )
        return _Reply(services, _EMPTY_TTL if ttl is None or not services else ttl)

    def _query(self, resolver: Any, name: str, kind: str) -> tuple[Sequence[Any], float | None]:
        """Records and their TTL; that is None if there are no records of any kind (NXDOMAIN)."""
        try:
            found = resolver.resolve(name, kind, lifetime=min(resolver.lifetime, _QUERY_SECS))
        except self._dns.resolver.NXDOMAIN:
            return (), None
        except self._dns.resolver.NoAnswer as error:
            _check_no_data(self._dns, error.response())
            return (), _EMPTY_TTL
        return list(found.rrset), found.chaining_result.minimum_ttl

    def _own_resolver(self) -> Any:
        # Made for each look, which costs a read of resolv.conf: that may change while the router runs.
        resolver = self._dns.resolver.Resolver(configure=self._server is None)
        resolver.timeout = min(resolver.timeout, _SERVER_SECS)
        resolver.use_edns(0, 0, _UDP_BYTES)
        resolver.use_search_by_default = self._server is None
        if self._server is not None:
            resolver.nameservers = [self._server[0]]
            resolver.port = self._server[1]
        return resolver

    def _check_name(self, name: str) -> None:
        try:
            self._dns.name.from_text(name)
        except self._dns.exception.DNSException as error:
            raise ValueError(f"{quoted(name)} is no DNS name: {error}") from None

    def _backoff(self) -> float:
        return _BACKOFF_SECS[min(self._failures, len(_BACKOFF_SECS)) - 1]

    def _pause(self, turn: _Round) -> float:
        shortest = min(reply.ttl for reply in turn.replies.values())
        spread = _clamp(shortest, self._min_secs, self._max_secs) * self._randomness.uniform(0.9, 1.1)
        return _clamp(spread, self._min_secs, self._max_secs)

    def _to_report(self, failures: Sequence[Problem], lasting: Sequence[Problem]) -> list[Problem]:
        """Those that are new, and failures that were last reported long ago."""
        now = self._clock()
        before = {problem: at for problem, at in self._reported.items() if problem in {*failures, *lasting}}
        new = [problem for problem in failures if now - before.get(problem, -math.inf) >= _REPEAT_SECS]
        new += [problem for problem in lasting if problem not in before]
        self._reported = {**before, **dict.fromkeys(new, now)}
        return new

    def _report(self, problems: Sequence[Problem], again_secs: float) -> None:
        """Has the next looks raise them: an error of each kind, without a pause between them."""
        by_kind: dict[str, list[str]] = {}
        for problem in dict.fromkeys(problems):
            by_kind.setdefault(problem.kind, []).append(f"{problem.name} {problem.message}")
        self._pending = [SourceError(kind, _listed(texts), 0) for kind, texts in by_kind.items()]
        if self._pending:
            self._pending[-1].again_secs = again_secs


class _MalformedError(Exception):
    """A response that tells nothing of the name."""


def _check_no_data(dns: Any, response: Any) -> None:
    """That a response without records says that there are none (NODATA in RFC 2308).

    Raises:
        _MalformedError: it is a referral, or of other names, or ends in a name that it says nothing of.
    """
    chain = response.resolve_chaining()
    names = {response.question[0].name, *(record.target for link in chain.cnames for record in link)}
    beside = (dns.rdatatype.DNAME, dns.rdatatype.RRSIG)  # of which a chain is made, and signed
    others = [link.name for link in response.answer if link.name not in names and link.rdtype not in beside]
    if others:
        raise _MalformedError(f"got a response with records of another name, {others[0]}")
    types = {record.rdtype for record in response.authority}
    if dns.rdatatype.SOA in types:
        return
    if dns.rdatatype.NS in types and (chain.cnames or not response.flags & dns.flags.AA):
        raise _MalformedError(
            "got a referral to other servers; name a server that resolves names by --dns-server"
        )
    # A server that resolves names has followed the chain to its end, and some of these send no SOA.
    if chain.cnames and not response.flags & dns.flags.RA:
        raise _MalformedError(f"got a CNAME to {chain.canonical_name}, of which the response says nothing")


def _failure_of(dns: Any, name: str, error: Any) -> tuple[str, str, str]:
    """Kind, name and message of a lookup that failed."""
    # Of each attempt: the server, whether by TCP, the port, an exception or the rcode's name, the response.
    attempts = error.kwargs.get("errors") or []
    servers = list(dict.fromkeys(_server_name(attempt[0]) for attempt in attempts))
    by = f" (server {', '.join(servers)})" if servers else ""
    if any(isinstance(attempt[3], dns.message.Truncated) for attempt in attempts):
        why = next((_short(attempt[3]) for attempt in reversed(attempts) if attempt[1]), "no connection")
        return "truncated", name, f"has a response that is too long for UDP, and TCP failed: {why}{by}"
    if isinstance(error, dns.exception.Timeout):
        return "timeout", name, f"got no response in time{by}"
    if isinstance(error, dns.resolver.YXDOMAIN):
        return "yxdomain", name, f"got YXDOMAIN{by}"
    rcodes = list(dict.fromkeys(attempt[3] for attempt in attempts if isinstance(attempt[3], str)))
    if rcodes:
        kind = rcodes[0].lower()
        return kind if kind in _RCODES else "rcode", name, f"got {', '.join(rcodes)}{by}"
    why = ", ".join(dict.fromkeys(_short(attempt[3]) for attempt in attempts)) or _short(error)
    unreachable = any(isinstance(attempt[3], OSError) for attempt in attempts)
    return "unreachable" if unreachable else "malformed", name, f"cannot be looked up: {why}{by}"


def _server_name(text: object) -> str:
    return str(text).removeprefix("Do53:").removesuffix("@53").replace("@", " port ")


def _short(error: object) -> str:
    text = (error.strerror if isinstance(error, OSError) else str(error)) or ""
    return " ".join(text.split())[:120] or type(error).__name__


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - _MAX_SHOWN
    return "; ".join(texts[:_MAX_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _dnspython(flag: str) -> Any:
    try:
        importlib.import_module("dns.resolver")
        return importlib.import_module("dns")
    except ImportError:
        raise ImportError(f"{flag} needs the package dnspython: pip install 'vllm-router[dns]'") from None


def _texts(name: str, values: Sequence[str]) -> Sequence[str]:
    if isinstance(values, str):
        raise TypeError(f"{name} is a str; it must be a list of them")
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"{name} holds {described(value)}; it must hold texts")
    return values


def _parse_host(url: str) -> HostUrl:
    shown = shown_urls(url) or "an empty text"
    if url.lower().startswith("https://"):
        raise ValueError(
            f"hosts (--worker-dns) has {shown}; a worker that is found by address cannot be verified by its "
            "name: write http://, or list the workers by name, as https://name:port, in --worker-urls or "
            "--worker-file"
        )
    if "@" in url:
        raise ValueError(
            f"hosts (--worker-dns) has {shown}; it must have no '@': workers take no user names, and the "
            "ranks of a worker are --intra-node-data-parallel-size"
        )
    match = _HOST_URL.fullmatch(url)
    if match is None or not 1 <= int(match["port"] or 80) <= 65535:
        raise ValueError(
            f"hosts (--worker-dns) has {shown}; it must be a URL of a name, such as http://vllm.svc:8000"
        )
    if _is_address(match["name"]):
        raise ValueError(
            f"hosts (--worker-dns) has {shown}, which is an address and no name; write it in --worker-urls"
        )
    if _ends_in_number(match["name"]):
        raise ValueError(
            f"hosts (--worker-dns) has {shown}, whose host ends in a number, as addresses do, and is not a "
            "whole one such as 10.0.0.1; write the name of a host, such as http://vllm.svc:8000"
        )
    return HostUrl(match["name"].lower(), int(match["port"] or 80), match["prefix"].rstrip("/"))


def _parse_srv(name: str) -> str:
    if not _SRV_NAME.fullmatch(name) or _ends_in_number(name):
        raise ValueError(
            f"srv (--worker-srv) has {shown_urls(name) or 'an empty text'}; it must be a name without scheme "
            "and port, such as _http._tcp.vllm.svc or vllm.service.consul"
        )
    return name.lower()


def _is_address(text: str) -> bool:
    try:
        return bool(ipaddress.ip_address(text.rstrip(".")))
    except ValueError:
        return False


def _ends_in_number(text: str) -> bool:
    """Whether it is an IPv4 address to every resolver, a whole one or not."""
    return text.rstrip(".").rpartition(".")[2].isdigit()


def _parse_server(text: str) -> tuple[str, int]:
    bracketed = re.fullmatch(r"\[([^\]]*)\](?::([0-9]{1,5}))?", text)
    plain = re.fullmatch(r"([^:]*)(?::([0-9]{1,5}))?", text)
    match = bracketed or plain
    address, port = (match[1], int(match[2] or 53)) if match else (text, 53)
    try:
        usable = (ipaddress.ip_address(address).version == 6 or not bracketed) and 1 <= port <= 65535
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(
            f"server (--dns-server) is {quoted(text)}; it must be an IP address with or without a port, such "
            "as 10.96.0.10, 127.0.0.1:8600 or [fd00::a]:53"
        )
    return address, port


def _seconds(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is {show(value)}; it must be a number of seconds")
    if not math.isfinite(value) or not 0.1 <= value <= 86_400:
        raise ValueError(f"{name} is {value}; it must be a number of seconds between 0.1 and 86400")
    return float(value)
