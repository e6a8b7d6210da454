"""benchmarks/shared_fleet_attacks.py: does it still work?"""

import dataclasses
import re

from benchmarks import shared_fleet_attacks


def test_a_small_run(capsys, monkeypatch):
    monkeypatch.setattr(shared_fleet_attacks, "LIGHT_PER_S", 10.0)
    monkeypatch.setattr(shared_fleet_attacks, "HONEST_OPEN", 2)
    names = ("alone", "promotion", "names")
    for name, scenario in shared_fleet_attacks.SCENARIOS.items():
        few = dataclasses.replace(scenario, clients=scenario.clients[:4])
        monkeypatch.setitem(shared_fleet_attacks.SCENARIOS, name, few)
    arguments = ["--seconds", "3", "--workers", "1", "--routers", "tenants", "--scenarios", *names]
    assert shared_fleet_attacks.main(arguments) == 0
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0] for row in rows] == list(names)
    assert all(int(row[2]) > 0 for row in rows)
    assert [row[10] for row in rows] == ["0"] * 3
    assert all(int(row[6]) > 0 and int(row[7]) > 0 for row in rows[1:])


def test_the_page_names_each_scenario():
    said = re.findall(r"^    (\w+) {2,}", shared_fleet_attacks.__doc__ or "", re.MULTILINE)
    assert said == list(shared_fleet_attacks.SCENARIOS)
