"""vllm_router.settings.urls: what is taken is what the core takes."""

import re

import pytest

from tests.unit.python.settings.values import errors_of
from vllm_router import _core_testing as testing
from vllm_router.router_args import FLAGS, RouterArgs
from vllm_router.settings.kinds import Unfit


@pytest.mark.parametrize(
    "url",
    [
        "http://a",
        "HTTP://a:8000",
        "http://a:8000/",
        "http://a:8000/v1/models@7",
        "http://10.0.0.1:65535@0",
        "http://[::1]:8000@2",
        "http://a:1@2/",
        "http://under_score.svc.cluster.local:80/p",
        "http://h/a@b",
    ],
)
def test_a_url_that_the_core_takes_is_taken_here(url: str) -> None:
    testing.parse_worker_url(url)
    RouterArgs(worker_urls=[url])._validate_router_args()


@pytest.mark.parametrize("url", ["a:1", "ftp://a", "http://", "http://a:0", "http://a:65536", "http://a b"])
def test_a_url_that_is_refused_here_is_refused_by_the_core(url: str) -> None:
    with pytest.raises(ValueError, match=re.escape(url)):
        testing.parse_worker_url(url)
    with pytest.raises(Unfit) as refused:
        FLAGS["worker_urls"].kind.each(url)
    assert refused.value.word == url


@pytest.mark.parametrize("origin", ["chat.example", "https://chat.example/", "HTTPS://chat.example", "**"])
def test_an_origin_has_the_form_that_browsers_send(origin: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = errors_of(f"--cors-allowed-origins {origin}", capsys)
    assert "must be origins like https://chat.example" in error
    assert repr(origin) in error


@pytest.mark.parametrize("path", ["own_rpc", "/", "/*", "/a?b", "/a*b", "/%61"])
def test_a_path_of_all_workers_is_one(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = errors_of(f"--fan-out-path {path}", capsys)
    assert "must be paths like /own_rpc" in error
    assert repr(path) in error


def test_a_masters_url() -> None:
    RouterArgs(shared_cache_url=["http://mooncake:9003", "https://[::1]:9003/"])
    for url in ("mooncake:9003", "http://m:9003@1", "http://m:9003/metrics", "name://m"):
        with pytest.raises(ValueError, match="shared_cache_url is"):
            RouterArgs(
                policy="kv", shared_cache_type="hicache", shared_cache_url=[url]
            )._validate_router_args()


@pytest.mark.parametrize("url", ["http://vllm.svc:8000", "HTTP://vllm", "http://a_b.svc.:1/prefix"])
def test_a_url_whose_host_dns_resolves(url: str) -> None:
    RouterArgs(worker_dns=[url])._validate_router_args()


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("vllm.svc:8000", "must be URLs like http://host:8000"),
        ("http://10.0.0.1:8000", "an address is one worker, and belongs to --worker-urls"),
        ("http://[fd00::1]:8000", "an address is one worker, and belongs to --worker-urls"),
        (
            "http://vllm.svc@2",
            "without the rank of one worker; set --intra-node-data-parallel-size for ranks",
        ),
        ("https://vllm.svc", "is not implemented in vllm-router "),
        ("http://10.0.0:80", "must be URLs with the name of a host that DNS resolves"),
        ("http://vllm.1.", "must be URLs with the name of a host that DNS resolves"),
        ("http://-a.b", "must be URLs with the name of a host that DNS resolves"),
        ("http://a..b", "must be URLs with the name of a host that DNS resolves, such as http://vllm.svc"),
        (f"http://{'a' * 64}", "must be URLs with the name of a host that DNS resolves"),
        ("http://user:hunter2@vllm.svc", "workers take no user names or passwords"),
    ],
)
def test_a_url_whose_host_dns_does_not_resolve(url: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)) as caught:
        RouterArgs(worker_dns=[url])._validate_router_args()
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["_http._tcp.vllm.svc", "vllm.service.consul", "a."])
def test_a_name_of_srv_records(name: str) -> None:
    RouterArgs(worker_srv=[name])._validate_router_args()


@pytest.mark.parametrize(
    "name", ["http://a", "a:53", "10.0.0.1", "10.0.0", "a..b", ".", f"{'a.' * 127}a", "a/b"]
)
def test_what_is_no_name_of_srv_records(name: str) -> None:
    with pytest.raises(
        ValueError, match=r"worker_srv is .* such as _http\._tcp\.vllm\.svc, without a scheme"
    ):
        RouterArgs(worker_srv=[name])._validate_router_args()
