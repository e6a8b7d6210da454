"""benchmarks/replay_bars.py: every bar has a value, in small, with policies that every build has."""

import re
from pathlib import Path

import pytest

from benchmarks import replay_bars

CHATS = str(Path(__file__).parents[1] / "data" / "mooncake_conversation_chats.jsonl")


@pytest.fixture
def _common_policies(monkeypatch):
    monkeypatch.setattr(replay_bars, "WORKERS", 1)  # so that few requests are many for the fleet
    monkeypatch.setattr(replay_bars, "AUTO", "vllm_cache_aware")
    for name in ("DOCUMENTED", "REFERENCE", "SMG", "LMETRIC"):
        monkeypatch.setattr(replay_bars, name, "round_robin")
    monkeypatch.setattr(replay_bars, "RIVALS", ("least_load", "no_such_policy"))


def lines(text, words):
    return [line for line in text.splitlines() if re.match(words, line)]


@pytest.mark.usefixtures("_common_policies")
def test_every_bar_is_printed_with_its_value_and_its_worst(capsys):
    small = ["--size", "0.05", "--seeds", "1", "--fleets", "1", "--caches", "1", "--trace", CHATS]
    status = replay_bars.main(small)
    said = capsys.readouterr().out
    wanted = list(replay_bars.bars([1], [1.0]))
    measured = [re.split(r" {2,}", line.strip()) for line in lines(said, r" +\d ")]
    assert len(measured) == len(wanted), said
    for bar, line in zip(wanted, lines(said, r" +\d "), strict=True):
        assert line.split()[:2] == [str(bar.number), bar.workload]
        value, worst = re.search(r"(\S+) \[ *(\S+)\]", line).groups()
        assert value == worst  # one seed
        assert line.endswith("DOES NOT HOLD") != (bar.holds(float(worst)) and line.endswith("holds")), line
    broken = said.count("DOES NOT HOLD")
    assert status == (1 if broken else 0)
    assert f"{len(wanted) - broken} hold, {broken} do not, 0 were not measured" in said


@pytest.mark.usefixtures("_common_policies")
def test_some_bars_of_some_workloads_are_chosen(capsys):
    replay_bars.main(["--workloads", "rag", "--bars", "4", "--size", "0.02", "--seeds", "2"])
    said = capsys.readouterr().out
    assert [line.split()[:3] for line in lines(said, r" +\d ")] == [
        ["4", "rag", "hit_share"],
        ["4", "rag", "ttft_p90_s"],
    ]


def test_without_its_trace_or_policy_a_bar_is_said_to_be_not_measured(capsys, monkeypatch):
    monkeypatch.delenv("REPLAY_TRACE", raising=False)
    monkeypatch.setattr(replay_bars, "AUTO", "no_such_policy")
    assert replay_bars.main(["--workloads", "conversation", "rag", "--bars", "4", "--size", "0.01"]) == 0
    said = capsys.readouterr().out
    assert said.count("not measured: its trace is not here: name the file with --trace or REPLAY_TRACE") == 4
    assert said.count("not measured: this build has no policy no_such_policy") == 2
    assert "0 hold, 0 do not, 6 were not measured" in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--trace", "no.jsonl"], "the trace no.jsonl is not there"),
        (["--seeds", "0"], "--seeds and --fleets must be 1 or more"),
        (["--bars", "9"], "invalid choice: 9"),
        (["--workloads", "x"], "invalid choice: 'x'"),
    ],
)
def test_a_mistake_is_one_sentence(capsys, words, sentence):
    with pytest.raises(SystemExit) as end:
        replay_bars.main(words)
    assert end.value.code == 2
    assert sentence in capsys.readouterr().err


def test_a_bar_breaks_on_its_worst_seed():
    bar = replay_bars.Bar(1, "rag", "x", 2.0, lambda *_: 0.0)
    assert (bar.worst([1, 3, 2]), bar.holds(2.0), bar.holds(2.1)) == (3, True, False)
    floor = replay_bars.Bar(1, "rag", "x", 2.0, lambda *_: 0.0, at_least=True)
    assert (floor.worst([1, 3, 2]), floor.holds(2.0), floor.holds(1.9)) == (1, True, False)
