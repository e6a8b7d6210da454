"""benchmarks/agent_cost.py: does it still work?"""

from benchmarks import agent_cost


def test_a_small_run(capsys):
    assert agent_cost.main(["--rounds", "1", "--requests", "16", "--policies", "auto"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 5
