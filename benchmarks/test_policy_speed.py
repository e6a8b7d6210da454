"""benchmarks/policy_speed.py runs once, small, so that it does not rot."""

from benchmarks import policy_speed
from vllm_router.router_args import BUILT_POLICIES


def test_every_policy_is_measured(capsys):
    policy_speed.main(["--workers", "2", "--calls", "8"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[1:]] == list(BUILT_POLICIES)
    assert all(float(line.split()[4]) > 0 for line in lines[1:])
