"""cpp/proxy/dashboard/dashboard_page.h: the page, its forms and the fields that guard it."""

import base64
import gzip
import hashlib
import re
from pathlib import Path

import pytest

from tests.dashboard.played_router import page

LARGEST = 64 << 10


@pytest.fixture
def ask(harness):
    client = harness.client(harness.router())
    return lambda *fields, method="GET": client.ask(method, "/dashboard", *fields)


def test_it_is_the_embedded_page(ask):
    response = ask()
    assert response.status == 200
    assert response.get("content-type") == "text/html; charset=utf-8"
    assert response.get("content-encoding") is None
    assert response.body == page()
    assert len(response.body) <= LARGEST


@pytest.mark.parametrize(
    ("accepted", "is_compressed"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("deflate,gzip", True),
        ("gzip;q=0", False),
        ("br", False),
        ("", False),
        ("xgzip", False),
    ],
)
def test_it_is_compressed_for_who_takes_that(ask, accepted, is_compressed):
    response = ask(("Accept-Encoding", accepted))
    assert response.get("content-encoding") == ("gzip" if is_compressed else None)
    assert response.get("vary") == "Accept-Encoding"
    assert (gzip.decompress(response.body) if is_compressed else response.body) == page()


def test_head_has_the_same_fields_and_no_body(ask):
    whole, head = ask(), ask(method="HEAD")
    assert head.get("content-length") == str(len(whole.body))
    assert head.get("content-security-policy") == whole.get("content-security-policy")


def test_its_policy_names_the_hashes_of_its_style_and_script(ask):
    response = ask()
    policy = dict(part.split(" ", 1) for part in response.get("content-security-policy").split("; "))

    def hash_of(element):
        text = re.search(rf"<{element}>(.*?)</{element}>".encode(), response.body, re.DOTALL)[1]
        return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"

    assert policy == {
        "default-src": "'none'",
        "script-src": hash_of("script"),
        "style-src": hash_of("style"),
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    assert response.get("x-content-type-options") == "nosniff"
    assert response.get("referrer-policy") == "no-referrer"
    assert response.get("cache-control") == "no-store"


def test_it_has_nothing_that_its_policy_blocks_or_that_is_fetched():
    text = page().decode()
    assert "style=" not in text
    assert not re.search(r"\son\w+=", text)
    assert ".innerHTML" not in text
    assert not re.search(r"(?:src|href)=\"(?!data:)", text)
    script = Path(__file__).parents[4] / "cpp/proxy/dashboard/page/dashboard.js"
    assert "eval(" not in script.read_text()
