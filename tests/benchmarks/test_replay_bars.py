"""benchmarks/replay_bars.py: every bar has a value, in small; what decides; what is said of mistakes."""

import re
from pathlib import Path

import pytest

from benchmarks import replay_bars
from benchmarks.replay_bars import Bar

CHATS = str(Path(__file__).parents[1] / "data" / "mooncake_conversation_chats.jsonl")
SMALL = ["--seeds", "1", "--size", "0.02"]


def lines(text):
    return [line for line in text.splitlines() if re.match(r" {1,2}\d{1,2} \w", line)]


def test_bars_are_printed_with_their_values_and_worst_cells(capsys):
    status = replay_bars.main(
        [*SMALL, "--workloads", "rag", "hot", "--bars", "2", "3", "7", "9", "10", "--cells"]
    )
    said = capsys.readouterr().out
    wanted = [bar for bar in replay_bars.BARS if bar.number in (2, 3, 7, 9, 10) and "chat" not in bar.needs]
    assert [line[4:54].strip() for line in lines(said)] == [bar.what for bar in wanted]
    for bar, line in zip(wanted, lines(said), strict=True):
        of_means, worst = (float(number) for number in line[54:72].split())
        assert of_means == worst  # one seed
        assert ("DOES NOT HOLD" in line) != bar.holds(worst)
        assert re.search(r"(rag|hot).* \([0-9.]+\)$", line)
    assert "    rag 4 workers 0.95" in said
    broken = said.count("DOES NOT HOLD")
    assert status == (1 if broken else 0)
    assert f"{len(wanted) - broken} hold, {broken} do not; " in said


def test_closed_loops_have_bars_of_their_own(capsys):
    replay_bars.main([*SMALL, "--size", "0.05", "--workloads", "rag", "--bars", "11", "12", "13", "14"])
    said = capsys.readouterr().out
    wanted = [bar for bar in replay_bars.BARS if bar.number in (11, 12, 13, 14)]
    assert [line[4:54].strip() for line in lines(said)] == [bar.what for bar in wanted]
    assert re.search(r"demo, 12 users \([0-9.]+\)$", lines(said)[-1])


def test_without_its_trace_conversation_is_said_to_be_left_out(capsys, monkeypatch):
    monkeypatch.delenv("REPLAY_TRACE", raising=False)
    assert replay_bars.main(["--workloads", "conversation"]) == 0
    said = capsys.readouterr().out
    assert "conversation is not measured: its trace is not here; name it with --trace or REPLAY_TRACE" in said
    assert lines(said) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--trace", "no.jsonl"], "the trace no.jsonl is not there"),
        (["--seeds", "0"], "--seeds and --jobs must be 1 or more"),
        (["--jobs", "0"], "--seeds and --jobs must be 1 or more"),
        (["--bars", "17"], "invalid choice: 17"),
        (["--workloads", "x"], "invalid choice: 'x'"),
    ],
)
def test_a_mistake_is_one_sentence(capsys, words, sentence):
    with pytest.raises(SystemExit) as end:
        replay_bars.main(words)
    assert end.value.code == 2
    assert sentence in capsys.readouterr().err


def test_a_trace_that_saturates_nothing_is_a_mistake(capsys):
    words = [
        "--workloads",
        "conversation",
        "--bars",
        "1",
        "--seeds",
        "1",
        "--size",
        "0.001",
        "--trace",
        CHATS,
    ]
    assert replay_bars.main(words) == 2
    assert capsys.readouterr().err.startswith("replay_bars.py: error: no rate saturates this fleet")


@pytest.mark.parametrize(
    ("of_means", "holds", "shown"), [(False, False, "1.414    2.000"), (True, True, "1.414    2.000")]
)
def test_the_worst_seed_decides_or_the_mean_of_the_seeds(capsys, of_means, holds, shown):
    seeds = [{"a": 1.0, "b": 0.5}, {"a": 2.0, "b": 0.5}]
    bar = Bar(1, "x", 1.5, None, lambda _, seed: seeds[seed - 1], of_means=of_means)
    assert replay_bars.measure(bar, replay_bars.Bench([], None, 1, 1), 2, False) is holds
    said = capsys.readouterr().out
    assert shown in said
    assert said.endswith("a (1.414)\n")


def test_a_floor_is_broken_from_below():
    floor = Bar(1, "x", 2.0, None, lambda *_: {}, at_least=True)
    assert (
        floor.worst([1, 3, 2]),
        floor.worst_cell({"a": 3, "b": 1}),
        floor.holds(2.0),
        floor.holds(1.9),
    ) == (
        1,
        "b",
        True,
        False,
    )
