"""benchmarks/endpoint_picker.py: does it still work?"""

import pytest

from benchmarks import endpoint_picker

SMALL = [
    "--requests",
    "40",
    "--rounds",
    "1",
    "--workers",
    "3",
    "--rate",
    "20",
    "--seconds",
    "1",
    "--equal",
    "50",
]


def rows_of(text):
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("| ")
    ]


def test_a_small_run(capsys):
    options = [*SMALL, "--output-secs", "0", "0.3", "--policies", "cache_aware", "random"]
    assert endpoint_picker.main(options) == 0
    rows = rows_of(capsys.readouterr().out)
    cpu, rate, equal = rows[1:9], rows[10:12], rows[13:]
    assert {row[0] for row in cpu} == {case.name for case in endpoint_picker.CASES}
    assert [row[:2] for row in rate] == [["0", "20"], ["0.3", "20"]]
    assert equal == [["`cache_aware`", "50", "0"], ["`random`", "50", "0"]]


def test_a_request_that_goes_elsewhere_is_counted(capsys, monkeypatch):
    served_by = endpoint_picker.Client.served_by
    monkeypatch.setattr(endpoint_picker.Client, "served_by", lambda *given: served_by(*given)[:-1])
    assert endpoint_picker.main([*SMALL, "--parts", "equal", "--policies", "round_robin"]) == 1
    assert rows_of(capsys.readouterr().out)[1:] == [["`round_robin`", "50", "50"]]


def test_the_published_run_is_its_part_alone(monkeypatch):
    asked = []
    monkeypatch.setattr(
        endpoint_picker, "print_rate", lambda urls, options: asked.append((len(urls), options))
    )
    assert endpoint_picker.main(["--published"]) == 0
    ((workers, options),) = asked
    assert (workers, options.rate, options.seconds, options.output_secs) == (100, 98.7, 600.0, [10.0])


@pytest.mark.parametrize(
    ("counts", "bound"), [((99, 100, 100), "0.5"), ((98, 99, 100), "1"), ((0, 0, 0), "-")], ids=str
)
def test_the_bucket_of_the_99th_percentile(counts, bound):
    bounds = ("0.0005", "0.001", "+Inf")
    page = "".join(
        f'vllm_router_overhead_seconds_bucket{{le="{le}"}} {count}\n'
        for le, count in zip(bounds, counts, strict=True)
    )
    assert endpoint_picker.decided_ms(page) == bound
