"""cpp/proxy/client/redis_settings.h: what is wrong with the options that name a Redis, and which it is."""

import re

import pytest

from tests.fakes.authority import Authority

URL = "redis://127.0.0.1:1"
TLS = "rediss://127.0.0.1:1"


def refuses(harness, reason, **options):
    routing = {"seed": 1, "peer_sync_stride_tokens": 64}
    with pytest.raises((ValueError, OSError), match=reason) as raised:
        harness.router(harness.worker(), policy="auto", routing=routing, **options)
    assert "SECRET" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("127.0.0.1:6379", "peer_sync has no scheme; write it as redis://host:6379/0"),
        ("http://127.0.0.1", "peer_sync has another scheme; write it as"),
        ("redis://:SECRET@", "peer_sync has no host name or address"),
        ("redis://h:99999", "peer_sync has a port that is no whole number between 1 and 65535"),
        ("redis://h/x", "peer_sync has a database that is no whole number"),
        ("redis://u:SECRET%@h", "peer_sync has a user or password with a '%' or '@'"),
        ("redis://[::x]", "peer_sync has an IPv6 address that is none"),
        (
            "redis://user@h",
            "peer_sync has a user and no password; set peer_sync_password_file, or remove the user",
        ),
    ],
)
def test_a_url_that_is_none(harness, url, why):
    refuses(harness, re.escape(why), peer_sync=url)


def test_a_password_file_that_has_none(harness, tmp_path):
    empty = tmp_path / "empty"
    empty.write_text("\n")
    refuses(
        harness,
        re.escape(
            f'peer_sync_password_file is "{empty}", which is empty; write the password on its first line'
        ),
        peer_sync=URL,
        peer_sync_password_file=str(empty),
    )
    refuses(
        harness, "peer_sync_password_file: .*missing", peer_sync=URL,
        peer_sync_password_file=str(tmp_path / "missing"),
    )  # fmt: skip
    long = tmp_path / "long"
    long.write_text("x" * 5000)
    refuses(harness, "peer_sync_password_file: .*4096", peer_sync=URL, peer_sync_password_file=str(long))


def test_certificates_without_tls(harness, tmp_path):
    authority = Authority(tmp_path)
    files = authority.certify("router")
    remedy = "and the connection has no TLS; write the URL as rediss://, or remove it"
    refuses(harness, f"peer_sync_ca_file is .*{remedy}", peer_sync=URL, peer_sync_ca_file=authority.path)
    shown = {"peer_sync_cert_path": files.cert, "peer_sync_key_path": files.key}
    refuses(harness, f"peer_sync_cert_path is .*{remedy}", peer_sync=URL, **shown)


def test_certificates_that_are_none(harness, tmp_path):
    authority = Authority(tmp_path)
    files, others = authority.certify("router"), authority.certify("another")
    junk = tmp_path / "junk"
    junk.write_text("junk")
    for options in (
        {"peer_sync_ca_file": str(junk)},
        {"peer_sync_ca_file": str(tmp_path / "missing")},
        {"peer_sync_cert_path": files.cert, "peer_sync_key_path": others.key},
        {"peer_sync_cert_path": str(junk), "peer_sync_key_path": files.key},
    ):
        refuses(harness, "peer_sync", peer_sync=TLS, **options)
