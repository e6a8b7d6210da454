"""docs/reference/simulated_worker.md against a worker: options, paths, headers, fields."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from scripts.simulated_worker_reference import render
from vllm_router.simulate_worker import make_parser
from vllm_router.testing import OPTIONS, SimulatedWorker

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "simulated_worker.md"
BODIES = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}]},
    "/v1/messages": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4},
    "/v1/completions": {"prompt": "x"},
    "/inference/v1/generate": {"token_ids": [1], "sampling_params": {}},
    "/v1/responses": {"input": "x"},
    "/v1/embeddings": {"input": "x"},
    "/tokenize": {"prompt": "Hello worlds"},
    "/detokenize": {"tokens": [1]},
    "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "x"}]},
    "/v1/responses/input_tokens": {"input": "x"},
    "/v1/messages/render": {"messages": [{"role": "user", "content": "x"}]},
    "/v1/responses/render": {"input": "x"},
    "/v1/conversations": {"items": [{"role": "user", "content": "x"}]},
}


def table(heading: str) -> list[list[str]]:
    lines = PAGE.read_text().split(heading)[1].splitlines()[2:]
    rows = lines[: next(i for i, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip().strip("`") for cell in row.strip("|").split("|")] for row in rows]


@pytest.fixture(scope="module")
def worker() -> Iterator[SimulatedWorker]:
    with SimulatedWorker(engine="instant") as worker:
        yield worker


def test_the_page_is_what_the_options_say() -> None:
    again = "python scripts/simulated_worker_reference.py > docs/reference/simulated_worker.md"
    assert PAGE.read_text() == render(), f"run: {again}"


def test_the_page_names_every_flag_once_and_no_other() -> None:
    named = re.findall(r"^- `--([a-z0-9-]+)` = ", PAGE.read_text(), re.MULTILINE)
    assert [name.replace("-", "_") for name in named] == list(OPTIONS)
    assert set(re.findall(r"`--([a-z0-9-]+)`", PAGE.read_text())) == set(named)
    flags = {spelling for action in make_parser()._actions for spelling in action.option_strings}
    assert {f"--{name}" for name in named} == {flag for flag in flags if "_" not in flag} - {"-h", "--help"}


def test_a_worker_answers_every_path_of_the_table_as_it_says(worker: SimulatedWorker) -> None:
    rows = table("| path | method | response |")
    for path, method, _ in rows:
        for asked in ("GET", "POST"):
            answer = httpx.request(asked, worker.url + path, json=BODIES.get(path))
            assert answer.status_code == (200 if method in (asked, "any") else 405), (asked, path)
    asked_paths = set(worker.stats()["paths"])
    assert asked_paths == {row[0] for row in rows}  # and these are all paths that it knows
    assert httpx.get(worker.url + "/x").status_code == 404
    shown = json.loads(next(row[2].split("`")[0] for row in rows if row[0] == "/version"))
    assert httpx.get(worker.url + "/version").json() == shown
    shown = next(row[2] for row in rows if row[0] == "/metrics")
    text = httpx.get(worker.url + "/metrics").text
    assert all(name in text for name in re.findall(r"vllm:\w+", shown))


def test_the_fields_of_the_statistics_are_those_of_the_table(worker: SimulatedWorker) -> None:
    assert [row[0] for row in table("| field | meaning |")] == list(worker.stats())


def test_each_header_of_the_table_is_the_fault_that_it_names(worker: SimulatedWorker) -> None:
    faults = {name for name, option in OPTIONS.items() if option.group.startswith("Faults")}
    seen = {}
    for header, _, fault in table("| header | value | as |"):
        assert fault in faults
        value = {"x-sim-status": "429", "x-sim-retry-after": "7", "x-sim-delay-ms": "300"}.get(header, "1")
        fields = {header: value} | ({"x-sim-status": "503"} if fault == "retry_after_s" else {})
        body = {"prompt": "x", "stream": fault == "close_after_tokens"}
        try:
            answer = httpx.post(worker.url + "/v1/completions", json=body, headers=fields, timeout=0.2)
            seen[fault] = (answer.status_code, answer.headers.get("retry-after"))
        except httpx.HTTPError as error:
            seen[fault] = type(error).__name__
    assert seen == {
        "status_code": (429, None),
        "retry_after_s": (503, "7"),
        "latency_ms": "ReadTimeout",
        "hang": "ReadTimeout",
        "garbage": "RemoteProtocolError",
        "close_early": "RemoteProtocolError",
        "close_after_bytes": "RemoteProtocolError",
        "close_after_tokens": "RemoteProtocolError",
    }


def test_a_prompt_of_a_block_never_hits_and_one_token_more_hits_the_block(worker: SimulatedWorker) -> None:
    def cached(prompt: str) -> int:
        answer = httpx.post(worker.url + "/v1/completions", json={"prompt": prompt}).json()
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert [cached("y" * 64) for _ in range(2)] == [0, 0]
    assert cached("y" * 68) == 16
