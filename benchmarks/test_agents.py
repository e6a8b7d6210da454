"""benchmarks/agents.py: does it still work, and is a conversation found?"""

import json

from benchmarks import agents


def test_a_small_recording(tmp_path, capsys):
    recording = tmp_path / "agent.jsonl"
    lines = [{"text": 0, "value": "You are an agent. " * 100}]
    messages = [{"role": "system", "content": {"$text": 0}}]
    for turn in range(3):
        messages = [*messages, {"role": "user", "content": f"turn {turn}"}]
        entry = {"scenario": "basic", "method": "POST", "path": "/v1/chat/completions", "headers": []}
        lines.append(entry | {"body": {"messages": messages}})
    recording.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert agents.main([str(recording), "--policies", "auto", "consistent_hash"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[1].startswith("agent | auto | basic: 1 0.6")
    assert rows[2].startswith("agent | consistent_hash | basic: ")
