"""benchmarks/response_cache_redis.py: does it still work?"""

from benchmarks import response_cache_redis


def test_a_small_run(capsys):
    response_cache_redis.main(["--rounds", "1", "--times", "40"])
    lines = capsys.readouterr().out.splitlines()
    names = ["off", "hit, memory", "hit, Redis", "miss, memory", "miss, Redis", "GET", "redis-benchmark"]
    assert [line.split("|")[1].strip() for line in lines[2:-1]] == names
    assert "GETs longer than one in memory" in lines[-1]
