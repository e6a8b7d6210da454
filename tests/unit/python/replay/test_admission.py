"""python/vllm_router/replay/admission.py: classes of a file, and what each class and tenant got."""

import json
import math

import numpy as np
import pytest

from vllm_router.replay import Admission, Fleet, Trace, TraceError, generate, read_trace, run
from vllm_router.replay.admission import (
    MOST_TENANTS,
    Window,
    all_default,
    columns_of,
    groups_of,
    share_of,
    shares_of,
)
from vllm_router.replay.report import points_of, shares_table

FILE = """
classes:
  - {name: interactive, queue_size: 7}
  - {name: default}
  - {name: batch, kv_ceiling: 0.25, idle_only: true}
tenants: {search: {weight: 4}}
"""


def trace_of(classes, tenants=None, names=()) -> Trace:
    count = len(classes)
    return Trace(
        name="small",
        block_size=16,
        arrival_s=np.arange(count, dtype=np.float64),
        input_tokens=np.full(count, 100, np.uint32),
        output_tokens=np.full(count, 11, np.uint32),
        block_ids=np.empty(0, np.uint64),
        block_offsets=np.zeros(count + 1, np.int64),
        priority_classes=np.array(classes, np.uint8),
        tenants=None if tenants is None else np.array(tenants, np.uint32),
        tenant_names=names,
    )


def result_of(count: int, **members) -> dict:
    """All were served in 2 s, with the first token after 1 s."""
    return {
        "arrival_s": np.arange(count, dtype=np.float64),
        "ttft_s": np.ones(count),
        "e2e_s": np.full(count, 2.0),
        "status": np.zeros(count, np.uint8),
        "hit_tokens": np.full(count, 50, np.uint32),
        "wait_s": np.zeros(count),
        "dispatch": np.zeros(count, np.uint8),
        "span_s": count + 1.0,
        **members,
    }


def test_a_file_becomes_lines_for_the_core(tmp_path):
    path = tmp_path / "classes.yaml"
    path.write_text(FILE)
    lines = Admission.read(path).lines.splitlines()
    assert lines[0].startswith("class interactive queue_size=7")
    assert "gate=idle_only kv_ceiling=0.25" in lines[2]
    assert lines[3] == "tenant weight=4.0 search"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(None, "cannot be read"), (b"\xff\xfe", "is not UTF-8"), (b"classes: 7", "classes.yaml, line 1")],
    ids=["missing", "bytes", "members"],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path, content, sentence):
    path = tmp_path / "classes.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TraceError, match=sentence):
        Admission.read(path)


def test_a_share_counts_what_its_requests_got():
    trace = trace_of([0, 0, 2, 2])
    result = result_of(
        4,
        ttft_s=np.array([1.0, 3.0, 1.0, math.nan]),
        e2e_s=np.array([2.0, 4.0, 2.0, math.nan]),
        status=np.array([0, 0, 0, 5], np.uint8),
        wait_s=np.array([0.0, 0.5, 0.0, 9.0]),
        dispatch=np.array([0, 1, 2, 255], np.uint8),
    )
    classes, tenants = shares_of(trace, result)
    assert tenants == {}
    assert list(classes) == ["interactive", "batch"]
    people, batch = classes["interactive"], classes["batch"]
    assert (people["requests"], people["finished"], people["rejected"], people["queued"]) == (2, 2, 0, 1)
    assert (people["ttft_p50_s"], people["ttft_p99_s"]) == (1.0, 3.0)
    assert people["token_ms"] == pytest.approx(100)
    # The last ends at 5 s.
    assert people["requests_per_s"] == pytest.approx(2 / 5)
    assert people["tokens_per_s"] == pytest.approx(22 / 5)
    assert people["hit_share"] == pytest.approx(0.5)
    assert people["wait_p99_s"] == 0.5
    assert (batch["requests"], batch["finished"], batch["rejected"], batch["aged"]) == (2, 1, 1, 1)
    assert batch["ttft_p99_s"] == math.inf


def test_a_window_has_those_that_came_and_those_that_ended_in_it():
    trace = trace_of([1] * 10)
    share = share_of(trace, result_of(10), np.ones(10, bool), Window(4.0, 8.0))
    assert (share["requests"], share["finished"]) == (4, 4)
    assert share["requests_per_s"] == pytest.approx(1)


def test_of_many_tenants_the_busiest_have_names():
    tenants = [*range(MOST_TENANTS + 5), *range(5, MOST_TENANTS + 5)]
    names = tuple(f"t{number}" for number in range(MOST_TENANTS + 5))
    _, shares = shares_of(trace_of([1] * len(tenants), tenants, names), result_of(len(tenants)))
    assert len(shares) == MOST_TENANTS + 1
    assert shares["other"]["requests"] == 5
    assert "t0" not in shares


def test_columns_have_the_names_of_classes_and_tenants():
    trace = trace_of([0, 2], [1, 0], ("a", "b_c"))
    row = columns_of(trace, result_of(2))
    assert groups_of(row) == ["class_interactive", "class_batch", "tenant_a", "tenant_b_c"]
    assert row["tenant_b_c_requests"] == 1
    json.dumps(row)


def test_a_replay_with_classes_says_what_each_got():
    trace = generate("classes", 1, 300)
    fleet = Fleet(workers=2)
    rows = run(trace, ["auto"], fleet, rate=8.0)
    rows += run(trace, ["auto"], fleet, rate=8.0, admission=Admission())
    for row in rows:
        assert groups_of(row) == ["class_interactive", "class_batch"]
        assert row["class_interactive_requests"] + row["class_batch_requests"] == len(trace)
        assert row["finished"] + row["rejected"] == len(trace)
    without, with_classes = rows
    assert without["class_batch_wait_p99_s"] == 0 < with_classes["class_batch_wait_p99_s"]
    assert with_classes["class_interactive_ttft_p99_s"] < without["class_interactive_ttft_p99_s"]
    (point,) = points_of(rows[:1])
    assert shares_table(point) is not None


def test_a_trace_without_classes_has_no_such_columns():
    (row,) = run(generate("rag", 1, 50), ["random"], Fleet(workers=2), rate=2.0, admission=Admission())
    assert groups_of(row) == []
    (point,) = points_of([row])
    assert shares_table(point) is None


def test_classes_are_for_fleets_of_one_stage():
    with pytest.raises(TraceError, match="prefill and decode workers"):
        run(generate("rag", 1, 20), ["auto"], Fleet(prefill=1, decode=1), admission=Admission())


def test_all_default_forgets_who_asks():
    trace = all_default(trace_of([0, 2], [0, 1], ("a", "b")))
    assert trace.priority_classes.tolist() == [1, 1]
    assert trace.tenants is None
    assert trace.tenant_names == ()


def line(at_ms: int, **members) -> str:
    return json.dumps(
        {"timestamp": at_ms, "input_length": 600, "output_length": 5, "hash_ids": [at_ms], **members}
    )


def test_a_recorded_line_may_say_class_and_tenant(tmp_path):
    path = tmp_path / "trace.jsonl"
    rows = [line(0, priority_class="Batch", tenant="search"), line(1), line(2, tenant="search")]
    path.write_text("\n".join(rows) + "\n")
    trace = read_trace(path)
    assert trace.priority_classes.tolist() == [2, 1, 1]
    assert [trace.tenant_names[number] for number in trace.tenants] == ["search", "anonymous", "search"]
    assert trace.take(np.array([2, 0])).priority_classes.tolist() == [1, 2]


def test_a_recorded_line_without_them_leaves_them_out(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text(line(0) + "\n" + line(1) + "\n")
    trace = read_trace(path)
    assert trace.priority_classes is None
    assert trace.tenants is None
    assert "tenants" not in trace.as_core()


@pytest.mark.parametrize(
    ("members", "sentence"),
    [({"priority_class": "silver"}, "priority_class is"), ({"tenant": "a b"}, "tenant is")],
    ids=["class", "tenant"],
)
def test_a_recorded_line_with_another_class_or_name_is_skipped(tmp_path, members, sentence):
    path = tmp_path / "trace.jsonl"
    path.write_text(line(0) + "\n" + line(1, **members) + "\n")
    problems = []
    assert len(read_trace(path, on_problem=problems.append)) == 1
    assert sentence in problems[0]


def test_a_file_s_programs_are_apart_from_its_classes(tmp_path):
    path = tmp_path / "classes.yaml"
    path.write_text("classes: [{name: batch}]\nprograms: {fill: 0.8}\n")
    assert "programs" not in Admission.read(path).lines
    assert Admission.members_of_programs(path) == "fill=0.8"
    path.write_text("programs: {max_wait: 60s}\n")
    assert Admission.read(path).lines == ""
    assert Admission.members_of_programs(path) == "max_wait_ms=60000"
