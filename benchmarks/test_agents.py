"""benchmarks/agents.py: a row for each agent and policy, with its figures."""

from benchmarks import agents


def test_a_row_has_the_figures_of_one_agent_and_policy(capsys):
    assert agents.main(["--agents", "mini_swe_agent_2.4.6", "--policies", "auto", "round_robin"]) == 0
    _, _, auto, turns = (row.split(" | ") for row in capsys.readouterr().out.splitlines())
    assert auto[:5] == ["| mini_swe_agent_2.4.6", "auto", "1", "1.00", "1"]
    matched, allowed, cached = (float(cell.rstrip(" |")) for cell in auto[5:])
    assert 0.8 < matched <= allowed
    assert 0.8 < cached < 1
    assert turns[3:6] == ["3.00", "3", "–"]
