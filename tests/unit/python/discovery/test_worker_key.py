"""vllm_router.discovery.worker_key: the same URLs as the core, and the same ones equal."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing
from vllm_router.discovery.worker_key import worker_key

URLS = [
    *("http://gpu-0", "http://GPU-0:80/", "HTTP://gpu-0:080", "https://gpu-0", "https://gpu-0:443//"),
    *("http://gpu-0:443", "http://gpu-0@0", "http://gpu-0/@0", "http://gpu-0@00", "http://gpu-0/p@1"),
    *("http://gpu-0/p/", "http://gpu-0/P", "http://gpu-0/a@b", "http://gpu-0@", "http://gpu-0/%41"),
    *("http://10.0.0.1", "http://10.0.0", "http://10.0.0.01", "http://gpu.5", "http://5", "http://gpu.5."),
    *("http://gpu-0:70000", "http://gpu-0:0", "http://gpu-0:", "http://gpu-0:True", "http://gpu-0:1:2"),
    *(
        "http://[::1]",
        "http://[::1]:80",
        "http://[0::1]",
        "http://[::1%eth0]",
        "http://[::1",
        "http://[::1]8",
    ),
    *(
        "http://[]",
        "http://",
        "http:///p",
        "gpu-0:80",
        "",
        "grpc://a",
        "unix://a",
        "http://a?b",
        "http://a#b",
    ),
    *(
        "http://a/%",
        "http://a/%0",
        "http://a/%00",
        "http://a/%zz",
        "http://a b",
        "http://a,b",
        "http://\u00fc",
    ),
    *(
        "http://a\x00",
        "http://a\x7f",
        "http://a\n",
        "http://user:pw@a",
        "http://a..b",
        "http://.a",
        "http://-",
    ),
    *("ray://a", "name://a", "NAME://a", "name://A", "name://", "name://a@1", "name://a/b/@1", "ray://a?b#c"),
    *(
        "http://a@65535",
        "http://a@65536",
        "http://a@" + "9" * 30,
        "http://a:" + "9" * 5000,
        "http://a/\u0666",
    ),
    *("http://" + "a" * 253, "http://" + "a" * 254, "http://a/" + "b" * 2048, "http://a@1@2", "http://a:@1"),
]
ODD = st.text(st.sampled_from("aA0159.:/@%[]-_?#, \n~\u00fc\u0665"), max_size=12)


def of_core(url: str) -> dict[str, object] | None:
    try:
        parsed: dict[str, object] = testing.parse_worker_url(url)
    except ValueError:
        return None
    return parsed


def of_python(url: str) -> str | None:
    try:
        return worker_key(url)
    except ValueError:
        return None


@pytest.mark.parametrize("url", URLS)
def test_a_url_is_taken_if_the_core_takes_it(url: str) -> None:
    assert (of_python(url) is None) == (of_core(url) is None)


@given(st.builds("{}://{}".format, st.sampled_from(["http", "https", "HTTP", "name", "x"]), ODD) | ODD)
@example("http://a:@1")
def test_any_url_is_taken_if_the_core_takes_it(url: str) -> None:
    assert (of_python(url) is None) == (of_core(url) is None)


def test_urls_are_one_worker_if_they_are_to_the_core() -> None:
    known = [url for url in URLS if of_python(url) is not None]
    assert len(known) > 25
    for one in known:
        for other in known:
            ranks = [(of_core(url) or {})["rank"] for url in (one, other)]
            same = testing.same_host(one, other) and ranks[0] == ranks[1]
            assert (worker_key(one) == worker_key(other)) == same, (one, other)


@pytest.mark.parametrize("url", ["http://u:hunter2@a", "http://a/?k=hunter2", "http://a,hunter2", "hunter2"])
def test_no_message_shows_a_password(url: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011, what it says is looked at here
        worker_key(url)
    assert "hunter2" not in str(caught.value)


def test_a_text_that_is_no_unicode_is_rejected() -> None:
    assert of_python("http://\ud800") is None
