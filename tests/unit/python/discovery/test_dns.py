"""DNS names as a source of workers: what responses stand for, and what failures leave as it was."""

import contextlib
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.dns import SHAPES, Dnsmasq, FakeDns
from tests.fakes.wire import PATIENCE
from tests.rows import for_each_row
from vllm_router.discovery import DnsSource, Follower, Listing, SourceError, WorkerSpec
from vllm_router.discovery import dns as module
from vllm_router.discovery.dns import Found, HostUrl, SrvRecord, chosen, together, workers_of

SHORT = 0.05  # seconds for a query to a server that is silent


@pytest.fixture
def server() -> Iterator[FakeDns]:
    with FakeDns() as server:
        yield server


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def urls(listing: Listing) -> list[str]:
    assert listing.workers is not None
    return [spec.url for spec in listing.workers]


def error_of(source: DnsSource) -> SourceError:
    with pytest.raises(SourceError) as raised:
        source.look()
    return raised.value


# From responses to workers.

HOST = HostUrl("a", 8000, "")


def record(target: str, weight: int = 0, priority: int = 0, port: int = 80) -> SrvRecord:
    return SrvRecord(priority, weight, port, target)


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        ([], []),
        (["10.0.0.1"], ["http://10.0.0.1:8000"]),
        (["10.0.0.10", "10.0.0.9"], ["http://10.0.0.9:8000", "http://10.0.0.10:8000"]),
        (["10.0.0.1", "10.0.0.1"], ["http://10.0.0.1:8000"]),
        (["FD00:0::A"], ["http://[fd00::a]:8000"]),
        (["fd00::a", "fd00:0:0::a"], ["http://[fd00::a]:8000"]),
        (["0.0.0.0", "::", "10.0.0.1"], ["http://10.0.0.1:8000"]),
    ],
)
def test_each_address_is_a_worker(addresses: list[str], expected: list[str]) -> None:
    found = workers_of([HOST], [], {"a": addresses}, {})
    assert [spec.url for spec in found.workers] == expected
    assert found.complete
    assert [problem.kind for problem in found.problems] == ([] if expected else ["no_address"])


def test_a_worker_has_the_port_and_the_prefix_of_the_url() -> None:
    found = workers_of([HostUrl("a", 80, "/v/x")], [], {"a": ["::1"]}, {})
    assert found.workers == [WorkerSpec("http://[::1]:80/v/x", labels={"name": "a"})]


def test_of_two_names_with_one_address_the_first_has_the_worker() -> None:
    hosts = [HostUrl("b", 80, ""), HostUrl("a", 80, ""), HostUrl("a", 81, "")]
    services = {"s": [record("t.", 50)]}
    found = workers_of(hosts, ["s"], {"a": ["10.0.0.1"], "b": ["10.0.0.1"], "t.": ["10.0.0.1"]}, services)
    assert [(spec.url, spec.labels, spec.weight) for spec in found.workers] == [
        ("http://10.0.0.1:80", {"name": "b"}, 1),
        ("http://10.0.0.1:81", {"name": "a"}, 1),
    ]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([], []),
        ([record("a.", 100)], [("a.", 1)]),
        ([record("a.", 0), record("b.", 0)], [("a.", 1), ("b.", 1)]),
        ([record("a.", 0), record("b.", 50)], [("a.", 0.01), ("b.", 0.5)]),
        ([record("a.", 1), record("b.", 65535)], [("a.", 0.01), ("b.", 100)]),
        ([record("a.", 10, 2), record("b.", 20, 1)], [("b.", 0.2)]),
        ([record("a.", 0, 1), record("b.", 20, 2)], [("a.", 1)]),
        ([record(".", 10)], []),
        ([record("a.", 10, port=0)], []),
        ([record("a.", 0, 1, port=0), record("b.", 30, 2)], [("b.", 0.3)]),
    ],
)
def test_records_of_the_lowest_priority_are_chosen(
    records: list[SrvRecord], expected: list[tuple[str, float]]
) -> None:
    assert [(kept.target, weight) for kept, weight in chosen(records)] == expected


def test_a_target_without_address_is_missing_and_the_others_stay() -> None:
    services = {"s": [record("a.", 10), record("b.", 20)]}
    found = workers_of([], ["s"], {"a.": [], "b.": ["10.0.0.2"]}, services)
    labels = {"name": "s", "target": "b."}
    assert found.workers == [WorkerSpec("http://10.0.0.2:80", weight=0.2, labels=labels)]
    assert found.complete
    assert [(problem.kind, problem.name) for problem in found.problems] == [("no_address", "a.")]


@pytest.mark.parametrize(
    ("addresses", "services"),
    [
        ({"t.": ["10.0.0.1"]}, {"s": [record("t.")]}),  # the host is not known
        ({"a": ["10.0.0.1"]}, {}),  # the service is not
        ({"a": ["10.0.0.1"]}, {"s": [record("t.")]}),  # its target is not
    ],
)
def test_a_list_with_something_that_is_not_known_is_not_complete(
    addresses: dict[str, list[str]], services: dict[str, list[SrvRecord]]
) -> None:
    found = workers_of([HOST], ["s"], addresses, services)
    assert not found.complete
    assert len(found.workers) == 1


ADDRESSES = st.lists(st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.1.1", "fd00::1", "fd00::2"]), max_size=5)
TARGETS = ["a.", "b.", "c."]
RECORDS = st.lists(
    st.builds(
        SrvRecord,
        st.integers(0, 2),
        st.sampled_from([0, 0, 1, 50, 65535]),
        st.sampled_from([80, 8000]),
        st.sampled_from(TARGETS),
    ),
    max_size=8,
)


@given(st.fixed_dictionaries(dict.fromkeys(TARGETS, ADDRESSES)), RECORDS, st.randoms())
def test_the_order_of_records_changes_nothing_and_none_is_lost(
    addresses: dict[str, list[str]], records: list[SrvRecord], randomness: random.Random
) -> None:
    hosts = [HostUrl("a.", 8000, ""), HostUrl("b.", 80, "/p")]
    found = workers_of(hosts, ["s"], addresses, {"s": records})

    shuffled = {name: randomness.sample(values, len(values)) for name, values in addresses.items()}
    assert workers_of(hosts, ["s"], shuffled, {"s": randomness.sample(records, len(records))}) == found

    expected = {(address, host.port, host.prefix) for host in hosts for address in addresses[host.name]}
    lowest = min((kept.priority for kept in records), default=0)
    expected |= {
        (address, kept.port, "")
        for kept in records
        if kept.priority == lowest
        for address in addresses[kept.target]
    }
    brackets = {"10.": "{}", "fd0": "[{}]"}
    assert sorted(spec.url for spec in found.workers) == sorted(
        f"http://{brackets[address[:3]].format(address)}:{port}{prefix}" for address, port, prefix in expected
    )
    assert found.complete


# What it is made with.


@for_each_row(
    ("options", "says"),
    [
        ({}, "hosts and srv are empty"),
        ({"hosts": ["https://vllm.svc"]}, "cannot be verified by its name.*--worker-urls or --worker-file"),
        ({"hosts": ["vllm.svc:8000"]}, "must be a URL of a name, such as http://vllm.svc:8000"),
        ({"hosts": ["http://vllm.svc:8000@2"]}, "must have no '@'.*--intra-node-data-parallel-size"),
        ({"hosts": ["http://vllm.svc:0"]}, "must be a URL of a name"),
        ({"hosts": ["http://vllm.svc:65536"]}, "must be a URL of a name"),
        ({"hosts": ["http://vllm.svc/a?b=c"]}, "must be a URL of a name"),
        ({"hosts": ["http://vllm.svc/a%00"]}, "must be a URL of a name"),
        ({"hosts": ["http://10.0.0.1:8000"]}, "is an address and no name; write it in --worker-urls"),
        (
            {"hosts": ["http://10.0.0:80"]},
            "ends in a number, as addresses do, .*write the name of a host, such",
        ),
        (
            {"hosts": ["http://gpu.5"]},
            "ends in a number, as addresses do, and is not a whole one such as 10.0.0",
        ),
        ({"srv": ["gpu.5"]}, "must be a name without scheme and port"),
        ({"hosts": ["http://[::1]:8000"]}, "must be a URL of a name"),
        ({"hosts": ["http://a..b:8000"]}, "'a..b' is no DNS name"),
        ({"hosts": ["http://" + "a" * 64]}, "is no DNS name: A DNS label is > 63 octets"),
        ({"srv": ["http://vllm.svc"]}, "must be a name without scheme and port"),
        ({"srv": [""]}, "has an empty text; it must be a name"),
        ({"srv": ["."]}, "must be a name"),
        ({"srv": ["vllm"], "server": "dns.google"}, "is 'dns.google'; it must be an IP address"),
        ({"srv": ["vllm"], "server": "10.0.0.1:0"}, "must be an IP address with or without a port"),
        ({"srv": ["vllm"], "server": "[10.0.0.1]:53"}, "must be an IP address"),
        ({"srv": ["vllm"], "min_secs": 0}, "min_secs is 0; it must be a number of seconds between 0.1 and"),
        ({"srv": ["vllm"], "max_secs": float("nan")}, "max_secs is nan"),
        ({"srv": ["vllm"], "min_secs": 40}, "min_secs is 40; it must be at most max_secs, 30"),
    ],
)
def test_what_cannot_be_used_is_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        DnsSource(**options)


def test_a_value_of_the_wrong_type_is_named() -> None:
    with pytest.raises(TypeError, match="hosts is a str; it must be a list of them"):
        DnsSource("http://a")
    with pytest.raises(TypeError, match="srv holds a number"):
        DnsSource(srv=[3])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="min_secs is soon; it must be a number of seconds"):
        DnsSource(["http://a"], min_secs="soon")  # type: ignore[arg-type]


def test_a_password_in_a_url_is_not_shown() -> None:
    for url in ("http://user:SECRET@vllm.svc:8000", "https://user:SECRET@vllm.svc"):
        with pytest.raises(ValueError, match="hosts") as raised:
            DnsSource([url])
        assert "SECRET" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "address", "port"),
    [
        ("10.0.0.1", "10.0.0.1", 53),
        ("10.0.0.1:8600", "10.0.0.1", 8600),
        ("fd00::a", "fd00::a", 53),
        ("[fd00::a]", "fd00::a", 53),
        ("[fd00::a]:8600", "fd00::a", 8600),
    ],
)
def test_the_server_is_an_address_with_or_without_a_port(text: str, address: str, port: int) -> None:
    resolver = DnsSource(["http://a"], server=text)._own_resolver()
    assert (resolver.nameservers, resolver.port) == ([address], port)
    assert not resolver.use_search_by_default


def test_without_dnspython_the_module_is_there_and_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['dns'] = None\n"
        "from vllm_router.discovery import DnsSource\n"
        "for names in ({'hosts': ['http://a']}, {'srv': ['a']}):\n"
        "    try: DnsSource(**names)\n"
        "    except ImportError as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [
        f"{flag} needs the package dnspython: pip install 'vllm-router[dns]'"
        for flag in ("--worker-dns", "--worker-srv")
    ]


# Against a server.


def test_records_are_looked_up_again_after_their_ttl(server: FakeDns) -> None:
    server.set("vllm.test", "A", "10.0.0.2", "10.0.0.1", ttl=7)
    source = DnsSource(["http://vllm.test:8000"], server=server.address, randomness=random.Random(1))
    pauses = set()
    for _ in range(10):
        listing = source.look()
        assert urls(listing) == ["http://10.0.0.1:8000", "http://10.0.0.2:8000"]
        assert listing.complete
        assert 6.3 <= listing.again_secs <= 7.7
        pauses.add(listing.again_secs)
    assert len(pauses) == 10


@pytest.mark.parametrize(("ttl", "expected"), [(0, 2), (5, 5), (3600, 20)])
def test_the_ttl_is_kept_within_limits(server: FakeDns, ttl: int, expected: float) -> None:
    server.set("vllm.test", "A", "10.0.0.1", ttl=ttl)
    source = DnsSource(["http://vllm.test"], server=server.address, min_secs=2, max_secs=20)
    pauses = [source.look().again_secs for _ in range(20)]
    assert pauses == [pytest.approx(expected, rel=0.1001)] * 20
    assert all(2 <= seconds <= 20 for seconds in pauses)


def test_the_shortest_ttl_counts(server: FakeDns) -> None:
    server.set("a.test", "A", "10.0.0.1", ttl=25)
    server.set("b.test", "CNAME", "c.test.", ttl=3)
    server.set("c.test", "A", "10.0.0.2", ttl=20)
    source = DnsSource(["http://a.test", "http://b.test"], server=server.address)
    listing = source.look()
    assert urls(listing) == ["http://10.0.0.1:80", "http://10.0.0.2:80"]
    assert listing.again_secs == pytest.approx(3, rel=0.1001)


def test_a_worker_with_both_families_is_one_worker(server: FakeDns) -> None:
    server.set("both.test", "A", "10.0.0.1")
    server.set("both.test", "AAAA", "fd00::1")
    server.set("six.test", "AAAA", "fd00::2")
    source = DnsSource(["http://both.test:1", "http://six.test:1"], server=server.address)
    assert urls(source.look()) == ["http://10.0.0.1:1", "http://[fd00::2]:1"]
    assert [(name, kind) for name, kind, _ in server.queries] == [
        ("both.test.", "A"),
        ("six.test.", "A"),
        ("six.test.", "AAAA"),
    ]


def test_case_and_a_dot_at_the_end_make_no_difference(server: FakeDns) -> None:
    server.set("vllm.test", "A", "10.0.0.1")
    source = DnsSource(["HTTP://VLLM.Test.:8000/", "http://vllm.test:8000"], server=server.address)
    assert urls(source.look()) == ["http://10.0.0.1:8000"]


@pytest.mark.parametrize("without", ["no such name", "no such type"])
def test_a_name_without_records_has_no_workers_and_says_so_once(server: FakeDns, without: str) -> None:
    if without == "no such type":
        server.set("vllm.test", "TXT", "text")
    source = DnsSource(["http://vllm.test"], server=server.address)
    listing = source.look()
    assert (urls(listing), listing.complete, listing.again_secs) == ([], True, 0)
    assert [kind for _, kind, _ in server.queries] == (["A"] if without == "no such name" else ["A", "AAAA"])
    error = error_of(source)
    assert (error.kind, error.message) == ("no_address", "vllm.test has no address (no A or AAAA records)")
    assert error.again_secs == pytest.approx(5, rel=0.1001)

    assert source.look().again_secs == pytest.approx(5, rel=0.1001)  # and is silent from here
    server.set("vllm.test", "A", "10.0.0.1")
    assert urls(source.look()) == ["http://10.0.0.1:80"]
    server.remove("vllm.test")
    assert urls(source.look()) == []
    assert error_of(source).kind == "no_address"


@pytest.mark.parametrize(
    ("how", "kind", "says"),
    [
        ("SERVFAIL", "servfail", "vllm.test got SERVFAIL"),
        ("REFUSED", "refused", "vllm.test got REFUSED"),
        ("NOTIMP", "notimp", "vllm.test got NOTIMP"),
        ("BADVERS", "rcode", "vllm.test got BADVERS"),
        ("YXDOMAIN", "yxdomain", "vllm.test got YXDOMAIN"),
        ("silence", "timeout", "vllm.test got no response in time"),
    ],
)
def test_a_failure_leaves_the_list_and_is_repeated_after_a_back_off(
    server: FakeDns, how: str, kind: str, says: str
) -> None:
    server.set("vllm.test", "A", "10.0.0.1")
    lifetime = SHORT if how == "silence" else PATIENCE
    source = DnsSource(["http://vllm.test"], resolver=lambda: server.resolver(lifetime))
    server.fail("vllm.test", how)
    for expected in (1, 2, 5, 5):
        error = error_of(source)
        assert (error.kind, error.again_secs) == (kind, expected)
        assert error.message.startswith(says)
    server.fail("vllm.test", None)
    source._make_resolver = server.resolver
    assert urls(source.look()) == ["http://10.0.0.1:80"]
    server.fail("vllm.test", "SERVFAIL")
    assert error_of(source).again_secs == 1


def test_a_response_that_is_no_message_is_a_failure(server: FakeDns) -> None:
    server.fail("vllm.test", "garbage")
    source = DnsSource(["http://vllm.test"], resolver=lambda: server.resolver(SHORT))
    assert error_of(source).kind in ("malformed", "timeout")  # by the version of dnspython


def test_a_long_response_comes_by_tcp(server: FakeDns) -> None:
    server.set("vllm.test", "A", *(f"10.0.0.{i}" for i in range(200)))
    source = DnsSource(["http://vllm.test"], server=server.address)
    assert urls(source.look()) == [f"http://10.0.0.{i}:80" for i in range(200)]
    assert [transport for _, _, transport in server.queries] == ["udp", "tcp"]


def test_a_long_response_without_tcp_is_a_failure() -> None:
    with FakeDns(tcp=False) as server:
        server.set("vllm.test", "A", *(f"10.0.0.{i}" for i in range(200)))
        error = error_of(DnsSource(["http://vllm.test"], server=server.address))
    assert error.kind == "truncated"
    assert "too long for UDP, and TCP failed: Connection refused" in error.message
    assert f"server 127.0.0.1 port {server.port}" in error.message


def test_a_name_that_fails_keeps_its_workers_and_hides_no_change_of_another(server: FakeDns) -> None:
    # a.test  10.0.0.1  ->  10.0.0.3            b.test  10.0.0.2  ->  SERVFAIL  ->  10.0.0.4
    server.set("a.test", "A", "10.0.0.1")
    server.set("b.test", "A", "10.0.0.2")
    clock = Clock()
    source = DnsSource(["http://a.test", "http://b.test"], server=server.address, clock=clock)
    assert urls(source.look()) == ["http://10.0.0.1:80", "http://10.0.0.2:80"]

    server.fail("b.test", "SERVFAIL")
    server.set("a.test", "A", "10.0.0.3")
    listing = source.look()
    assert urls(listing) == ["http://10.0.0.3:80", "http://10.0.0.2:80"]
    assert (listing.complete, listing.again_secs) == (True, 0)
    queries = len(server.queries)
    error = error_of(source)
    assert (error.kind, error.again_secs) == ("servfail", 1)
    assert len(server.queries) == queries

    clock.now += 59
    assert source.look().again_secs == 2  # has been reported
    clock.now += 2
    assert source.look().again_secs == 0
    assert error_of(source).again_secs == 5

    server.fail("b.test", None)
    server.set("b.test", "A", "10.0.0.4")
    listing = source.look()
    assert urls(listing) == ["http://10.0.0.3:80", "http://10.0.0.4:80"]
    assert listing.again_secs > 20


def test_no_worker_leaves_because_of_a_name_that_was_never_known(server: FakeDns) -> None:
    server.set("a.test", "A", "10.0.0.1")
    server.fail("b.test", "REFUSED")
    source = DnsSource(["http://a.test", "http://b.test"], server=server.address)
    listing = source.look()
    assert (urls(listing), listing.complete) == (["http://10.0.0.1:80"], False)
    assert error_of(source).kind == "refused"

    server.set("a.test", "A", "10.0.0.3")
    assert not source.look().complete
    server.fail("b.test", None)
    listing = source.look()
    assert (urls(listing), listing.complete) == (["http://10.0.0.3:80"], True)


def test_a_list_in_which_nothing_is_known_yet_is_an_error(server: FakeDns) -> None:
    server.set("_http._tcp.test", "SRV", "0 0 80 w1.test.")
    server.fail("w1.test", "SERVFAIL")
    source = DnsSource(srv=["_http._tcp.test"], server=server.address)
    assert error_of(source).kind == "servfail"


def test_failures_of_each_kind_are_raised_one_after_the_other(server: FakeDns) -> None:
    for i in range(5):
        server.fail(f"a{i}.test", "SERVFAIL")
    server.fail("b.test", "REFUSED")
    names = ["b", *(f"a{i}" for i in range(5))]
    source = DnsSource([f"http://{name}.test" for name in names], server=server.address)
    first, second = error_of(source), error_of(source)
    assert [(error.kind, error.again_secs) for error in (first, second)] == [("refused", 0), ("servfail", 1)]
    assert second.message.count("SERVFAIL") == 3
    assert second.message.endswith("; and 2 more")


def test_a_service_has_the_workers_of_its_targets(server: FakeDns) -> None:
    server.set("_http._tcp.test", "SRV", "0 50 8000 W1.test.", "0 200 8001 w2.test.", "1 9 8002 w3.test.")
    server.set("w1.test", "A", "10.0.0.1")
    server.set("w2.test", "AAAA", "fd00::2", ttl=4)
    source = DnsSource(srv=["_HTTP._tcp.test."], server=server.address)
    listing = source.look()
    assert listing.workers is not None
    assert [(spec.url, spec.weight, spec.detail) for spec in listing.workers] == [
        ("http://10.0.0.1:8000", 0.5, "name=_http._tcp.test. target=w1.test."),
        ("http://[fd00::2]:8001", 2, "name=_http._tcp.test. target=w2.test."),
    ]
    assert listing.again_secs == pytest.approx(4, rel=0.1001)
    assert "w3.test." not in server.names()


def test_names_of_stages_have_workers_of_stages(server: FakeDns) -> None:
    server.set("p.test", "A", "10.0.0.1")
    server.set("_http._tcp.d.test", "SRV", "0 200 8001 t.test.")
    server.set("t.test", "A", "10.0.0.2")
    source = DnsSource(
        prefill_hosts=["http://p.test:8000"], decode_srv=["_http._tcp.d.test"], server=server.address
    )
    found = [(one.url, one.worker_type, one.weight) for one in source.look().workers or ()]
    assert found == [("http://10.0.0.1:8000", "prefill", 1.0), ("http://10.0.0.2:8001", "decode", 2.0)]


def test_a_worker_of_both_stages_is_left_out_and_reported(server: FakeDns) -> None:
    server.set("p.test", "A", "10.0.0.1", "10.0.0.3")
    server.set("d.test", "A", "10.0.0.2", "10.0.0.3")
    source = DnsSource(
        prefill_hosts=["http://p.test:8000"], decode_hosts=["http://d.test:8000"], server=server.address
    )
    assert urls(source.look()) == ["http://10.0.0.1:8000", "http://10.0.0.2:8000"]
    error = error_of(source)
    assert error.kind == "both_stages"
    assert str(error) == (
        "p.test; d.test have workers of both stages, which are left out, since a worker has one: http://10.0.0.3:8000"
    )
    server.set("p.test", "A", "10.0.0.1")
    assert urls(source.look()) == ["http://10.0.0.1:8000", "http://10.0.0.2:8000", "http://10.0.0.3:8000"]


@given(
    *[st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 1), max_size=5)] * 2,
    st.lists(st.booleans(), min_size=2, max_size=2),
)
def test_each_worker_is_of_one_stage_or_of_none(
    prefill: dict[str, int], decode: dict[str, int], complete: list[bool]
) -> None:
    parts = [
        Found([WorkerSpec(f"http://{n}", worker_type=kind, labels={"name": kind}) for n in some], known, [])
        for kind, some, known in zip(("prefill", "decode"), (prefill, decode), complete, strict=True)
    ]
    found = together(parts)
    types = {one.url[7:]: one.worker_type for one in found.workers}
    assert types == {
        name: "prefill" if name in prefill else "decode" for name in prefill.keys() ^ decode.keys()
    }
    assert found.complete == all(complete)
    assert bool(found.problems) == bool(prefill.keys() & decode.keys())


def test_a_lookup_of_a_target_that_fails_keeps_its_addresses(server: FakeDns) -> None:
    server.set("s.test", "SRV", "0 0 80 w1.test.", "0 0 80 w2.test.")
    server.set("w1.test", "A", "10.0.0.1")
    server.set("w2.test", "A", "10.0.0.2")
    source = DnsSource(srv=["s.test"], server=server.address)
    before = urls(source.look())
    server.fail("w1.test", "SERVFAIL")
    listing = source.look()
    assert (urls(listing), listing.complete) == (before, True)
    assert error_of(source).kind == "servfail"

    server.set("s.test", "SRV", "0 0 80 w2.test.")  # it is no target any more
    assert urls(source.look()) == ["http://10.0.0.2:80"]


def test_targets_of_a_service_that_fails_are_still_looked_up(server: FakeDns) -> None:
    server.set("s.test", "SRV", "0 0 80 w1.test.")
    server.set("w1.test", "A", "10.0.0.1")
    source = DnsSource(srv=["s.test"], server=server.address)
    source.look()
    server.fail("s.test", "SERVFAIL")
    server.set("w1.test", "A", "10.0.0.2")
    assert urls(source.look()) == ["http://10.0.0.2:80"]


@pytest.mark.parametrize("shape", [name for name in SHAPES if not name.startswith("no data")])
@pytest.mark.parametrize("what", ["hosts", "srv"])
def test_a_response_that_tells_nothing_of_the_name_leaves_the_list(
    server: FakeDns, shape: str, what: str
) -> None:
    server.set("vllm.test", "SRV", "0 0 80 w.test.")
    server.set("vllm.test", "A", "10.0.0.1")
    server.set("w.test", "A", "10.0.0.1")
    source = DnsSource(
        **{what: ["http://vllm.test" if what == "hosts" else "vllm.test"]}, server=server.address
    )
    assert urls(source.look()) == ["http://10.0.0.1:80"]
    server.fail("vllm.test", shape)
    if what == "hosts":  # nothing else is known
        error = error_of(source)
    else:  # the target is
        assert urls(source.look()) == ["http://10.0.0.1:80"]
        error = error_of(source)
    assert error.kind == "malformed"
    assert error.message.startswith("vllm.test ")
    server.fail("vllm.test", None)
    assert urls(source.look()) == ["http://10.0.0.1:80"]


@pytest.mark.parametrize("shape", [name for name in SHAPES if name.startswith("no data")])
def test_no_data_is_an_empty_list(server: FakeDns, shape: str) -> None:
    source = DnsSource(["http://vllm.test"], ["vllm.test"], server=server.address)
    server.fail("vllm.test", shape)
    listing = source.look()
    assert (urls(listing), listing.complete) == ([], True)
    assert error_of(source).kind == "no_address"


def test_targets_that_are_not_named_any_more_are_forgotten(server: FakeDns) -> None:
    server.set("vllm.test", "SRV", "0 0 80 old.test.")
    server.set("old.test", "A", "10.0.0.1")
    server.set("new.test", "A", "10.0.0.2")
    source = DnsSource(srv=["vllm.test"], server=server.address)
    source.look()
    server.set("vllm.test", "SRV", "0 0 80 new.test.")
    assert urls(source.look()) == ["http://10.0.0.2:80"]
    server.set("vllm.test", "SRV", "0 0 80 old.test.")
    server.fail("old.test", "SERVFAIL")  # what was known of it when it was a target is not known any more
    assert error_of(source).kind == "servfail"


def test_a_list_longer_than_a_fleet_is_cut_and_said(server: FakeDns, monkeypatch: pytest.MonkeyPatch) -> None:
    server.set("vllm.test", "A", "10.0.0.1", "10.0.0.2", "10.0.0.3")
    source = DnsSource(["http://vllm.test"], server=server.address)
    monkeypatch.setattr("vllm_router.discovery.source.MAX_WORKERS", 2)
    router = RecordingRouter()
    follower = Follower(router, source, wait=lambda _: True)  # type: ignore[arg-type]
    follower.start()
    follower._thread.join(PATIENCE)
    assert router.said[1] == ("dns", ["http://10.0.0.1:80", "http://10.0.0.2:80"], True, [])
    assert router.said[2][:2] == ("dns", "too_many")
    assert "The largest part is of name=vllm.test: 3. Shorten the list, or run a second" in router.said[2][2]


def test_search_domains_are_those_of_resolv_conf(server: FakeDns, tmp_path: Path) -> None:
    import dns.resolver

    conf = tmp_path / "resolv.conf"
    conf.write_text("nameserver 127.0.0.1\nsearch ns.svc.test svc.test\noptions ndots:5\n")

    def resolver() -> dns.resolver.Resolver:
        made = dns.resolver.Resolver(filename=str(conf))
        made.port = server.port
        made.use_search_by_default = True
        return made

    server.set("vllm.svc.test", "A", "10.0.0.1")
    source = DnsSource(["http://vllm:8000"], resolver=resolver)
    assert urls(source.look()) == ["http://10.0.0.1:8000"]
    assert server.names() == ["vllm.ns.svc.test.", "vllm.svc.test."]


def test_the_own_resolver_searches_and_gives_each_server_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    import dns.resolver

    source = DnsSource(["http://vllm:8000"])
    read = []

    def read_resolv_conf(self: dns.resolver.Resolver, path: str) -> None:
        read.append(path)
        self.nameservers = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]

    monkeypatch.setattr(dns.resolver.Resolver, "read_resolv_conf", read_resolv_conf)
    resolver = source._own_resolver()
    assert read == ["/etc/resolv.conf"]
    assert resolver.use_search_by_default
    assert 3 * resolver.timeout <= module._QUERY_SECS < 5
    assert resolver.payload == 1232  # responses above that are not cut up by the network, but come by TCP


def test_without_resolv_conf_it_says_what_to_set(tmp_path: Path) -> None:
    import dns.resolver

    conf = tmp_path / "resolv.conf"
    source = DnsSource(["http://vllm"], resolver=lambda: dns.resolver.Resolver(filename=str(conf)))
    for expected in (1, 2, 5):
        error = error_of(source)
        assert (error.kind, error.again_secs) == ("no_resolver", expected)
        assert "--dns-server" in error.message


def test_where_time_is_short_names_that_failed_come_last_and_each_has_its_turn(server: FakeDns) -> None:
    # Each look has time for 3 queries.
    names = [f"a{i}.test" for i in range(4)] + [f"b{i}.test" for i in range(4)]
    for i in range(4):
        server.set(f"a{i}.test", "A", f"10.0.1.{i}")
        server.set(f"b{i}.test", "A", f"10.0.0.{i}")
        server.fail(f"a{i}.test", "SERVFAIL")
    source = DnsSource(
        [f"http://{name}" for name in names], server=server.address, clock=lambda: 10.0 * len(server.queries)
    )
    looks: list[list[str]] = []
    kinds = set()
    found: list[str] = []

    def look() -> None:
        nonlocal found
        before = len(server.queries)
        try:
            found = urls(source.look())
        except SourceError as error:
            kinds.add(error.kind)
        if len(server.queries) > before:
            looks.append(server.names(before))

    while len(looks) < 12:
        look()
    assert found == [f"http://10.0.0.{i}:80" for i in range(4)]
    assert kinds == {"servfail", "timeout"}
    steady = looks[4:]
    assert all([name[0] for name in names] == ["b", "b", "b", "a"] for names in steady)
    assert {name for names in steady for name in names} == {f"{name}." for name in names}

    for i in range(4):
        server.fail(f"a{i}.test", None)
    while len(looks) < 24:
        look()
    assert found == [f"http://10.0.{network}.{i}:80" for network in (1, 0) for i in range(4)]


def test_names_that_fail_leave_time_for_targets(server: FakeDns) -> None:
    names = [f"a{i}.test" for i in range(20)]
    for name in names:
        server.fail(name, "SERVFAIL")
    server.set("s.test", "SRV", "0 0 80 w1.test.")
    server.set("w1.test", "A", "10.0.0.1")
    source = DnsSource(
        [f"http://{name}" for name in names],
        ["s.test"],
        server=server.address,
        clock=lambda: 10.0 * len(server.queries),
    )
    found: list[str] = []
    for _ in range(100):
        with contextlib.suppress(SourceError):
            found = urls(source.look())
        if found:
            break
    assert found == ["http://10.0.0.1:80"]


def test_close_ends_a_look_between_two_queries(server: FakeDns) -> None:
    names = [f"a{i}.test" for i in range(50)]
    for name in names:
        server.fail(name, "silence")
    source = DnsSource([f"http://{name}" for name in names], resolver=lambda: server.resolver(SHORT))
    raised = []
    thread = threading.Thread(target=lambda: raised.append(error_of(source)))
    thread.start()
    server.wait_for_queries(1)
    source.close()
    source.close()
    thread.join(PATIENCE)
    assert [error.kind for error in raised] == ["closed"]
    assert len(set(server.names())) < len(names)
    assert error_of(source).kind == "closed"


class RecordingRouter:
    """Keeps what a follower says to a router."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def reconcile(self, source: str, workers: Any, *, complete: bool, deleted: Any) -> None:
        self.said.append((source, [spec.url for spec in workers], complete, list(deleted)))

    def _report_source(self, source: str, kind: str, message: str) -> None:
        self.said.append((source, kind, message.partition(" (")[0]))


def test_a_follower_declares_the_list_and_reports_what_failed_beside_it(server: FakeDns) -> None:
    server.set("a.test", "A", "10.0.0.1", ttl=20)
    server.fail("b.test", "SERVFAIL")
    router = RecordingRouter()
    pauses: list[float] = []

    def wait(seconds: float) -> bool:
        pauses.append(seconds)
        if len(pauses) == 2:
            server.fail("b.test", None)
        return len(pauses) == 4

    source = DnsSource(["http://a.test", "http://b.test"], server=server.address, randomness=random.Random(1))
    follower = Follower(router, source, wait=wait)  # type: ignore[arg-type]
    follower.start()
    assert follower.first(PATIENCE)
    follower._thread.join(PATIENCE)
    assert follower.stop(PATIENCE)
    assert router.said == [
        ("dns", "", ""),
        ("dns", ["http://10.0.0.1:80"], False, []),
        ("dns", "servfail", "b.test got SERVFAIL"),
        ("dns", ["http://10.0.0.1:80"], True, []),
        ("dns", "no_address", "b.test has no address"),
    ]
    assert pauses[:3] == [0.01, 1, 0.01]


# Against dnsmasq.


def test_dnsmasq_is_followed(tmp_path: Path) -> None:
    with Dnsmasq(tmp_path, "--srv-host=_http._tcp.vllm.test,w1.test,8001,0,50") as server:
        server.hosts("10.0.0.1 vllm.test", "10.0.0.2 vllm.test", "fd00::1 w1.test")
        source = DnsSource(
            ["http://vllm.test:8000"], ["_http._tcp.vllm.test"], server=server.address, max_secs=60
        )
        listing = source.look()
        assert listing.workers is not None
        assert [(spec.url, spec.weight) for spec in listing.workers] == [
            ("http://10.0.0.1:8000", 1),
            ("http://10.0.0.2:8000", 1),
            ("http://[fd00::1]:8001", 0.5),
        ]
        assert listing.again_secs == pytest.approx(7, rel=0.1001)

        server.hosts("10.0.0.2 vllm.test", "10.0.0.3 vllm.test", "fd00::1 w1.test")
        changed = urls(source.look())
        assert changed == ["http://10.0.0.2:8000", "http://10.0.0.3:8000", "http://[fd00::1]:8001"]

        server.hosts()
        assert urls(source.look()) == []
        error = error_of(source)
        assert error.kind == "no_address"
        assert error.message.startswith("vllm.test has no address")


def test_a_dnsmasq_that_stands_still_changes_nothing(tmp_path: Path) -> None:
    with Dnsmasq(tmp_path) as server:
        server.hosts("10.0.0.1 vllm.test")
        source = DnsSource(["http://vllm.test"], server=server.address)
        assert urls(source.look()) == ["http://10.0.0.1:80"]
        own = source._own_resolver

        def impatient() -> Any:
            resolver = own()
            resolver.lifetime = SHORT
            return resolver

        source._make_resolver = impatient
        server.send(SIGSTOP)
        assert error_of(source).kind == "timeout"
        server.send(SIGCONT)
        source._make_resolver = own
        assert urls(source.look()) == ["http://10.0.0.1:80"]


def test_dnsmasq_that_knows_no_server_for_a_name_rejects_the_query(tmp_path: Path) -> None:
    with Dnsmasq(tmp_path) as server:
        error = error_of(DnsSource(["http://vllm.elsewhere"], server=server.address))
        assert error.kind == "refused"
