"""benchmarks/adapters.py runs once, small, so that it does not rot."""

import json

from benchmarks import adapters


def test_every_row_is_measured(capsys):
    small = ["--calls", "3", "--repeat", "1", "--prompts", "4", "--samples", "3", "--length", "320"]
    adapters.main([*small, "--json"])
    figures = json.loads(capsys.readouterr().out)
    assert {name: len(sizes) for name, sizes in figures["pick_us"].items()} == dict.fromkeys(
        ("litellm", "ray", "verl"), len(adapters.SIZES)
    )
    assert set(figures["rollouts"]) == {"verl's own", *adapters.POLICIES}
    adapters.main(small)
    assert "most in flight" in capsys.readouterr().out
