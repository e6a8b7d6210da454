"""benchmarks/end_to_end/replay_check.py: what the replay says is what a server and workers do."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from vllm_router.replay import read_trace

PATH = Path(__file__).parents[2] / "benchmarks" / "end_to_end" / "replay_check.py"

spec = importlib.util.spec_from_file_location("replay_check", PATH)
replay_check = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = replay_check
spec.loader.exec_module(replay_check)


@pytest.mark.slow
def test_the_same_trace_in_real_time_hits_as_much_as_the_replay_says(capsys):
    words = "--limit 200 --rate 1.5 --repeat 2 --policy consistent_hash vllm_cache_aware"
    status = replay_check.main(words.split())
    said = capsys.readouterr().out
    assert status == 0, said
    shares = [float(line.split()[2]) for line in said.splitlines()[1:]]
    assert all(40 < share < 80 for share in shares), said  # there is something to be wrong about


def test_texts_are_as_equal_as_the_traces_blocks():
    trace = replay_check.comparable(read_trace(replay_check.CHATS, spread=False), 1.0)
    texts = [replay_check.prompt_of(trace, request) for request in range(60)]
    assert [len(text) for text in texts] == (trace.input_tokens[:60].astype(int) * 4).tolist()
    for one in range(0, 60, 7):
        for other in range(one + 1, 60):
            same = 0
            for a, b in zip(trace.blocks(one), trace.blocks(other), strict=False):
                if a != b:
                    break
                same += 1
            common = next(
                (i for i, (a, b) in enumerate(zip(texts[one], texts[other], strict=False)) if a != b),
                min(len(texts[one]), len(texts[other])),
            )
            assert common // (512 * 4) == same


def test_late_requests_may_change_places_and_are_the_same_requests():
    trace = replay_check.comparable(read_trace(replay_check.CHATS, spread=False), 1.0)
    late = replay_check.late(trace, 0.5, seed=1)
    assert (np.diff(late.arrival_s) >= 0).all()
    assert (late.input_tokens != trace.input_tokens).any()
    assert sorted(late.input_tokens) == sorted(trace.input_tokens)
    assert (np.sort(late.arrival_s) - trace.arrival_s).max() <= 0.5


def test_only_full_blocks_are_compared():
    trace = read_trace(replay_check.CHATS, spread=False)
    full = replay_check.comparable(trace, 1.0)
    assert (np.diff(full.block_offsets) == trace.input_tokens // 512).all()
    assert full.rate == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--speed", "0"], "--speed is 0; it must be above 0 and at most 1000"),
        (["--repeat", "0"], "--repeat is 0; it must be 1 or more"),
        (["no.jsonl"], "no.jsonl does not exist"),
        (["--policy", "lest_load"], "policy is 'lest_load'"),
    ],
)
def test_a_mistake_is_one_sentence(capsys, words, sentence):
    with pytest.raises(SystemExit) as end:
        replay_check.main(words)
    assert end.value.code == 2
    assert sentence in capsys.readouterr().err
