"""benchmarks/response_cache.py: does it still work?"""

from benchmarks import response_cache


def test_a_small_run(capsys):
    small = {"rounds": 1, "requests": 80, "times": 10, "events": 20, "streams": 8}
    response_cache.main([f"--{name}={value}" for name, value in small.items()])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.startswith(" ")] == [
        *("off", "hit", "miss", "bypass") * 2,
        *("off", "hit"),
    ]
