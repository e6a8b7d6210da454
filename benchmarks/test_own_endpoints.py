"""benchmarks/own_endpoints.py: does it still work, and is everybody served?"""

from benchmarks import own_endpoints


def test_a_small_flood(capsys):
    options = ["--workers", "50", "--connections", "50", "--seconds", "1", "--paths", "/metrics", "/workers"]
    assert own_endpoints.main(options) == 0
    rows = [[cell.strip() for cell in line.split("|")] for line in capsys.readouterr().out.splitlines()[1:]]
    assert [(row[0], row[3]) for row in rows] == [("/metrics", "20 of 20"), ("/workers", "20 of 20")]
