"""benchmarks/share_a_fleet.py: does it still work?"""

from benchmarks import share_a_fleet


def test_a_small_run(capsys, monkeypatch):
    for name in ("RESPONSE_TOKENS", "BATCH_TOKENS"):
        monkeypatch.setattr(share_a_fleet, name, 4)
    monkeypatch.setattr(share_a_fleet, "PAUSE_S", 0.1)
    arguments = ["--seconds", "3", "--workers", "1", "--users", "12", "--flood", "4", "--arms", "classes"]
    assert share_a_fleet.main(arguments) == 0
    row = capsys.readouterr().out.splitlines()[-1].split("|")
    assert row[1].strip() == "classes"
    assert int(row[2]) > 0
    assert int(row[9]) == 0
