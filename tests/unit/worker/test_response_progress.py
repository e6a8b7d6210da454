"""cpp/worker/response_progress.h: what is counted of responses. Its use: test_hang_detector.py."""

import pytest

from vllm_router import _core_testing as testing


@pytest.mark.parametrize(
    ("size", "expected"),
    [(0, 0), (4095, 0), (4096, 1), (16383, 1), (16384, 2), (65536, 3), (2**20, 5), (2**40, 5)],
)
def test_sizes_have_classes(size, expected):
    assert testing.request_size_of(size) == expected


@pytest.mark.parametrize(
    ("waited", "end"),
    [(0.0, 0.016), (0.0159, 0.016), (0.016, 0.032), (1.0, 1.024), (1.1, 2.048), (1e6, 262.144)],
)
def test_so_have_durations(waited, end):
    """By the end of the class, doubled: the limit of a stream."""
    detector = testing.HangDetector()
    row = (0, 0, True, False, False, 0)
    for _ in range(20):
        detector.count_first_byte(0, "stream", 100, waited, 1, 1.0)
    detector.observe(1.0, [row])
    assert detector.limit(0, "stream", 100) == pytest.approx(max(5.0, 2 * end))
