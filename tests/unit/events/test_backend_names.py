"""cpp/events/backend_names.h: which worker another router means."""

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

FLEET = [
    "http://gpu-0:8000",
    "http://gpu-1:8000",
    "http://gpu-1:8001",
    "http://[fd00::1]:8000",
    "https://gpu-2@0",
]


@for_each_row(
    ("name", "worker"),
    [
        ("gpu-0", "http://gpu-0:8000"),
        ("gpu-0:8000", "http://gpu-0:8000"),
        ("http://gpu-0:8000", "http://gpu-0:8000"),
        ("gpu-1", None),  # two workers
        ("gpu-1:8001", "http://gpu-1:8001"),
        ("[fd00::1]", "http://[fd00::1]:8000"),
        ("gpu-2:443", "https://gpu-2@0"),
        ("https://gpu-2@0", "https://gpu-2@0"),
        ("gpu-3", None),
        ("", None),
        ("mine", "http://gpu-1:8001"),
        ("vllm-0", None),  # a source whose worker is not here
    ],
)
def test_a_name_means_the_worker_of_a_source_or_place(name, worker):
    sources = ["mine=http://gpu-1:8001/v1/kv_events", "vllm-0=http://elsewhere:1/e"]
    assert testing.find_backend(name, sources, FLEET) == worker


def test_a_source_s_name_comes_before_a_host_s():
    assert testing.find_backend("gpu-0", ["gpu-0=http://gpu-1:8000/e"], FLEET) == "http://gpu-1:8000"
