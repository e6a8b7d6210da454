"""cpp/proxy/peer_sync/peer_sync_report.h: what the service last saw, in /ha/status and the metrics."""

from tests.fakes.wire import eventually
from tests.models import peer_frame
from tests.proxy.test_peer_sync import chosen, get, metric, open_router, publish, status, wait_until_connected


def test_counts_of_frames_decisions_and_bytes_agree_on_both_sides(harness, redis):
    workers = [harness.worker(), harness.worker()]
    one, other = (open_router(harness, workers, redis) for _ in range(2))
    wait_until_connected(harness, one, other)
    for number in range(5):
        chosen(harness, one, f"{number} prompt " * 200)
    eventually(lambda: status(harness, other)["decisions"]["applied"] == 5)
    assert status(harness, one)["decisions"] == {
        "sent": 5,
        "applied": 0,
        "dropped": 0,
        "not_understood": 0,
        "of_unknown_workers": 0,
    }
    assert metric(one, "peer_sync_decisions_total", result="sent") == 5
    (member,) = status(harness, other)["members"]
    assert member["gaps"] == 0
    eventually(lambda: status(harness, one)["members"][0]["heard_of_this_router"] > member["sequence"])


def test_a_member_is_shown_as_it_told_of_itself(harness, redis):
    router = open_router(harness, [harness.worker()], redis)
    eventually(lambda: get(harness, router, "/ha/health").status == 200)
    names = [(0, 0, "http://unknown:8000")]
    frame = peer_frame.empty(
        router=99,
        sequence=7,
        fingerprint=5,
        full=True,
        names=names,
        loads=[(0, (4, 0, 0, 0, 0))],
        about=[(b'a \x00"name', b"9.9")],
    )
    publish(redis, {"router": 99, "bytes": peer_frame.write(frame)})
    eventually(lambda: status(harness, router)["members"] != [])
    (member,) = status(harness, router)["members"]
    assert member.pop("heard_ms") >= 0
    assert "\0" not in member.pop("name")
    assert member == {
        "router": f"{99:016x}",
        "version": "9.9",
        "state": "live",
        "sequence": 7,
        "gaps": 0,
        "heard_of_this_router": 0,
        "requests": 4,
        "decisions_understood": False,
    }
    assert metric(router, "peer_sync_peers", state="live") == 1
