"""cpp/worker/worker_url.h: what a worker's URL may look like, and the sentence for each that it may not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import for_each_row
from vllm_router import _core_testing as testing
from vllm_router._core import worker_key


def parse(url):
    return testing.parse_worker_url(url)


@for_each_row(
    ("url", "base", "host", "port", "prefix", "authority", "rank"),
    [
        ("http://a:8000", "http://a:8000", "a", 8000, "", "a:8000", None),
        ("http://a", "http://a", "a", 80, "", "a", None),
        ("http://a:80", "http://a:80", "a", 80, "", "a", None),
        (
            "http://A.b-c_d.example:8000",
            "http://A.b-c_d.example:8000",
            "A.b-c_d.example",
            8000,
            "",
            "A.b-c_d.example:8000",
            None,
        ),
        ("HTTP://a:8000", "HTTP://a:8000", "a", 8000, "", "a:8000", None),
        ("http://10.0.0.1:8000@2", "http://10.0.0.1:8000", "10.0.0.1", 8000, "", "10.0.0.1:8000", 2),
        ("http://a@0", "http://a", "a", 80, "", "a", 0),
        ("http://[::1]:8000", "http://[::1]:8000", "::1", 8000, "", "[::1]:8000", None),
        ("http://[::1]", "http://[::1]", "::1", 80, "", "[::1]", None),
        ("http://[::1]:8000/prefix@2", "http://[::1]:8000/prefix", "::1", 8000, "/prefix", "[::1]:8000", 2),
        ("http://a:8000/v1/models/x", "http://a:8000/v1/models/x", "a", 8000, "/v1/models/x", "a:8000", None),
        ("http://a:8000/@cf/x", "http://a:8000/@cf/x", "a", 8000, "/@cf/x", "a:8000", None),
        ("http://a:8000/a%20b", "http://a:8000/a%20b", "a", 8000, "/a%20b", "a:8000", None),
        ("http://a.:8000", "http://a.:8000", "a.", 8000, "", "a.:8000", None),
        ("https://a", "https://a", "a", 443, "", "a", None),
        ("https://a:443", "https://a:443", "a", 443, "", "a", None),
        ("https://a:80/p@1", "https://a:80/p", "a", 80, "/p", "a:80", 1),
        ("http://a:443", "http://a:443", "a", 443, "", "a:443", None),
    ],
)
def test_a_url_is_taken_apart(url, base, host, port, prefix, authority, rank):
    parsed = parse(url)
    assert parsed["url"] == url
    assert parsed["base"] == base
    assert parsed["host"] == host
    assert parsed["port"] == port
    assert parsed["prefix"] == prefix
    assert parsed["authority"] == authority
    assert parsed["rank"] == rank
    assert parsed["tls"] == url.lower().startswith("https")


@pytest.mark.parametrize(
    ("url", "host", "rank"),
    [
        ("ray://app#llm#1f9k", "app#llm#1f9k", None),
        ("name://a:99999/?x@y", "a:99999/?x@y", None),
        ("name://Node-3@2", "Node-3", 2),
        ("RAY://x", "x", None),
    ],
)
def test_a_name_is_kept_as_it_is(url, host, rank):
    """mending row 52: opaque names of workers to which nothing connects."""
    parsed = parse(url)
    assert parsed["is_name"]
    assert (parsed["url"], parsed["host"], parsed["rank"]) == (url, host, rank)
    assert (parsed["port"], parsed["prefix"], parsed["authority"], parsed["tls"]) == (0, "", "", False)
    assert not parse("http://a")["is_name"]


def test_names_are_the_same_if_their_bytes_are():
    """mending row 52: nothing is known of what a name means."""
    same = testing.same_host
    assert same("ray://a@1", "ray://a@2")
    assert not same("ray://a", "ray://A")
    assert not same("ray://a", "name://a")
    assert not same("name://a", "http://a")


def test_a_trailing_slash_is_dropped_also_around_a_rank():
    assert parse("http://a:8000/")["url"] == "http://a:8000"
    assert parse("http://a:8000//")["url"] == "http://a:8000"
    assert parse("http://a:8000/v1/")["prefix"] == "/v1"
    assert parse("http://a:8000/@3")["url"] == "http://a:8000@3"
    assert parse("http://a:8000/@3/")["url"] == "http://a:8000@3"


@for_each_row(
    ("url", "sentence"),
    [
        ("", "INVALID_ARGUMENT: a worker URL is empty; write it as http://host:port"),
        ("a:8000", "has no scheme; write it as http://host:port"),
        ("localhost", "has no scheme"),
        ("ftp://a", 'has the scheme "ftp"; workers are reached over http:// or https://'),
        ("grpc://a:8000", "UNIMPLEMENTED: .*over HTTP, not gRPC"),
        ("grpcs://a:8000", "UNIMPLEMENTED: .*over HTTP, not gRPC"),
        ("unix:///run/worker.sock", "UNIMPLEMENTED: .*Unix sockets are not implemented yet"),
        ("http://", "has no host"),
        ("ray://", "has nothing after the scheme; write name://<id>"),
        ("name:///@3", "has nothing after the scheme"),
        ("name://a b", "contains a blank"),
        ("http://:8000", "has no host"),
        ("http:///v1", "has no host"),
        ("http://@2", "has no host"),
        ("http://a:", 'has the port "".*1 to 65535'),
        ("http://a:0", 'has the port "0"'),
        ("http://a:65536", 'has the port "65536"'),
        ("http://a:99999999999999999999", "has the port"),
        ("http://a:80x", 'has the port "80x"'),
        ("http://a:+80", 'has the port "\\+80"'),
        ("http://a:8000:9000", "more than one ':' after the host"),
        ("http://::1:8000", "write an IPv6 address as"),
        ("http://[::1", "opens '\\[' without"),
        ("http://[::1]8000", 'has "8000" after the address'),
        ("http://[::1]:", 'has the port ""'),
        ("http://[1.2.3.4]", "not an IPv6 address"),
        ("http://[::g]", "not an IPv6 address"),
        ("http://[fe80::1%eth0]", "not an IPv6 address \\(zones are not supported\\)"),
        ("http://[]", "not an IPv6 address"),
        ("http://999.1.1.1", "not an IPv4 address"),
        ("http://1.2.3", "not an IPv4 address"),
        ("http://12345", "not an IPv4 address"),
        ("http://a..b", "empty label"),
        ("http://.a", "empty label"),
        ("http://a*b", 'has "\\*" in its host'),
        ("http://a\\b", 'has "\\\\" in its host'),
        ("http://" + "a" * 254, "254 bytes; a host name has at most 253"),
        ("http://münchen:80", "outside ASCII; write the host in its xn-- form"),
        ("http://a b", "contains a blank"),
        (" http://a", "contains a blank"),
        ("http://a ", "contains a blank"),
        ("http://a\t", "contains a blank"),
        ("http://a\0b", "contains a NUL byte"),
        ("http://a/x\0", "contains a NUL byte"),
        ("http://a\r\nHost: b", "contains a control character"),
        ("http://a\x7f", "contains a control character"),
        ("http://a:8000,http://b:8000", "contains a comma; give several URLs as several values"),
        ("http://a/?x=1", "has a query; a worker is a base address"),
        ("http://a?x=1", "has a query"),
        ("http://a#top", "has a fragment"),
        ("http://a/v1#top", "has a fragment"),
        ("http://a/<x>", 'has "<" in its path; write it percent-encoded'),
        ("http://a/%zz", "two hexadecimal digits do not follow"),
        ("http://a/%", "two hexadecimal digits do not follow"),
        ("http://a/%2", "two hexadecimal digits do not follow"),
        ("http://a/x%00", "encoded NUL"),
        ("http://a:8000@65536", "rank 65536; ranks are at most 65535"),
        ("http://a:8000@99999999999999999999", "ranks are at most 65535"),
        ("http://a:8000@", "reads as a user name"),
        ("http://a:8000@x", "reads as a user name"),
        ("http://a:8000@-1", "reads as a user name"),
        ("http://me:secret@a:8000", "reads as a user name"),
        ("http://me@a:8000@2", "reads as a user name"),
        ("http://a/" + "x" * 2048, "2057 bytes long; the limit is 2048"),
    ],
)
def test_a_bad_url_gets_a_sentence(url, sentence):
    with pytest.raises(ValueError, match=sentence):
        parse(url)


def test_a_password_is_never_repeated():
    with pytest.raises(ValueError, match="user name") as error:
        parse("http://me:hunter2@host:8000/x?y")
    assert "hunter2" not in str(error.value)
    assert 'worker URL "http://...@host:8000/x?y" has something before' in str(error.value)


def test_control_bytes_do_not_reach_a_terminal():
    with pytest.raises(ValueError, match="worker URL") as error:
        parse("http://a\x1b[31m\0")
    assert "\\x1b" in str(error.value)
    assert "\x1b" not in str(error.value)


@given(st.text())
def test_any_text_is_taken_apart_or_answered_with_a_sentence(text):
    for url in (text, "http://" + text, "http://a" + text, "http://a/" + text):
        try:
            parsed = parse(url)
        except ValueError as error:
            assert "worker URL" in str(error)  # noqa: PT017
            continue
        assert parse(parsed["url"]) == parsed
        assert all("!" <= c <= "~" for c in parsed["url"])


def test_the_same_host_may_be_spelled_in_several_ways():
    assert testing.same_host("http://A:80/", "http://a")
    assert testing.same_host("http://a:8000@1", "HTTP://a:8000/@2")
    assert not testing.same_host("http://a:8000", "http://a:8001")
    assert not testing.same_host("http://a:8000/x", "http://a:8000/y")
    assert not testing.same_host("http://a:8000", "http://b:8000")
    assert not testing.same_host("http://a:8000", "https://a:8000")
    assert testing.same_host("https://a:443", "https://a")


SPELLINGS = [
    *("http://gpu-0", "http://GPU-0:80/", "HTTP://gpu-0:080", "https://gpu-0", "https://gpu-0:443//"),
    *("http://gpu-0:443", "http://gpu-0@0", "http://gpu-0/@0", "http://gpu-0@00", "http://gpu-0/p@1"),
    *("http://gpu-0/p/", "http://gpu-0/P", "http://gpu-0/a@b", "http://10.0.0.1", "http://[::1]"),
    *("http://[::1]:80", "http://[0::1]", "ray://a", "name://a", "NAME://a", "name://A", "name://a@1"),
]


def test_urls_of_one_worker_have_one_key():
    for one in SPELLINGS:
        for other in SPELLINGS:
            same = testing.same_host(one, other) and parse(one)["rank"] == parse(other)["rank"]
            assert (worker_key(one) == worker_key(other)) == same, (one, other)


@for_each_row(
    ("url", "why"),
    [
        ("", "is empty; write it as http://host:port"),
        ("hunter2", "has no scheme; write it as http://host:port, for example http://10.0.0.1:8000"),
        *(
            (f"{scheme}://hunter2", "has another scheme than http and https, over which workers are reached")
            for scheme in ("hunter2", "grpc", "unix")
        ),
        ("http://a@hunter2", "has something before '@' that reads as a user name; workers take no user "),
        ("http://u:hunter2@a", "has something before '@' that reads as a user name; workers take no user "),
        ("http://a@" + "9" * 30, "has a data-parallel rank above 65535"),
        ("http://a:hunter2", "has a port that is no number between 1 and 65535"),
        ("http://[hunter2]", "has something in brackets that is not an IPv6 address (zones are not suppor"),
        ("http://[::1]hunter2", "has something after the address; only a port may follow, as in http://[::"),
        ("http://hunter2*", "has a host of other characters than letters, digits, '-', '.' and '_' (write "),
        ("http://a..b", "has an empty label in its host a..b"),
        ("http://10.0.0", "has the host 10.0.0, which is not an IPv4 address such as 10.0.0.1"),
        ("http://a/<hunter2>", "has a character in its path that must be written percent-encoded"),
        ("http://a/?k=hunter2", "has a query; a worker is a base address, so end it before '?'"),
        ("http://a,hunter2", "contains a comma; remove it"),
        ("http://a hunter2", "contains a blank; remove it"),
        ("http://a\0hunter2", "contains a control character; remove it"),
        ("http://\u00fc", "contains a character outside ASCII; write the host in its xn-- form"),
        ("http://\ud800", "contains a character outside ASCII; write the host in its xn-- form"),
    ],
)
def test_why_a_url_has_no_key_shows_none_of_it(url, why):
    with pytest.raises(ValueError) as caught:  # noqa: PT011, what it says is looked at here
        worker_key(url)
    assert str(caught.value).startswith(why)
    assert "hunter2" not in str(caught.value)


@given(st.text())
def test_a_url_has_a_key_if_it_is_taken(text):
    for url in (text, "http://a" + text):
        try:
            parse(url)
        except ValueError:
            with pytest.raises(ValueError, match=r"^(is|has|contains) "):
                worker_key(url)
        else:
            assert worker_key(url)
