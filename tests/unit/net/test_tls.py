"""Files of TLS that cannot be used, each with its sentence. Over the wire it is tests/proxy/test_tls.py."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from tests.fakes.authority import Authority
from tests.fakes.harness import QUIET
from vllm_router import Router, _core


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls"))


def sentence_of(**options):
    with pytest.raises(OSError) as refusal:  # noqa: PT011
        _core.Server(Router(policy="round_robin"), **{**QUIET, **options})
    return str(refusal.value)


def test_a_file_that_is_not_there_is_named(authority):
    files = authority.certify("localhost")
    missing = sentence_of(tls_cert_path="/none/cert.pem", tls_key_path=files.key)
    assert missing.startswith(
        "the certificate /none/cert.pem cannot be used: No such file or directory; give"
    )
    missing = sentence_of(tls_cert_path=files.cert, tls_key_path="/none/key.pem")
    assert missing.startswith("the private key /none/key.pem cannot be used: No such file")
    assert "the CA bundle /none" in sentence_of(worker_ca_file="/none")
    assert "the CA bundle for clients /none" in sentence_of(
        tls_cert_path=files.cert, tls_key_path=files.key, tls_client_ca_file="/none"
    )


def test_rubbish_is_no_certificate_and_no_key(authority, tmp_path):
    files = authority.certify("localhost")
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("rubbish")
    assert f"the certificate {rubbish} cannot be used" in sentence_of(
        tls_cert_path=str(rubbish), tls_key_path=files.key
    )
    assert f"the private key {rubbish} cannot be used" in sentence_of(
        tls_cert_path=files.cert, tls_key_path=str(rubbish)
    )
    assert "a key without a password" in sentence_of(worker_ca_file=str(rubbish))


def test_a_key_of_another_certificate_is_told_from_the_right_one(authority):
    one, two = authority.certify("a"), authority.certify("b")
    assert "does not match the certificate" in sentence_of(tls_cert_path=one.cert, tls_key_path=two.key)
    assert "does not match the certificate" in sentence_of(worker_cert_path=one.cert, worker_key_path=two.key)


def test_a_key_with_a_password_is_refused_instead_of_asking(authority, tmp_path):
    files = authority.certify("localhost")
    key = serialization.load_pem_private_key(Path(files.key).read_bytes(), None)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    assert "a key without a password" in sentence_of(tls_cert_path=files.cert, tls_key_path=str(locked))


@pytest.mark.parametrize("ciphers", ["ECDHE-RSA-AES128-GCM-SHA265", "TLS_AES_128_GCM_SHA256", "", "!aNULL"])
@pytest.mark.parametrize("others", ["", "ECDHE+AESGCM:"])
def test_suites_that_choose_nothing_end_the_start(ciphers, others):
    """mending row 15: a misspelt suite is named instead of being passed over."""
    if others and ciphers in ("", "!aNULL"):
        return
    with pytest.raises(ValueError, match="tls_ciphers") as refusal:
        _core.Server(Router(policy="round_robin"), **{**QUIET, "tls_ciphers": others + ciphers})
    assert f'"{ciphers}" selects no cipher suite of TLS 1.2' in str(refusal.value)
    assert "ECDHE+AESGCM:ECDHE+CHACHA20" in str(refusal.value)


@pytest.mark.parametrize("ciphers", ["HIGH:!aNULL:!MD5:!RC4", "DEFAULT@SECLEVEL=2", "ALL:-NOSUCH:@STRENGTH"])
def test_lists_as_they_are_used_elsewhere_are_taken(ciphers):
    server = _core.Server(Router(policy="round_robin"), **{**QUIET, "tls_ciphers": ciphers})
    server.shutdown()
    assert server.wait(10.0)
