"""cpp/policy/ring_plan.h, seen through consistent_hash: the planned ring is the one built anew."""

from vllm_router import Router


def homes(router):
    return [
        router.select(headers={"X-Session-ID": f"session-{i}"}).worker_url.split("//")[1] for i in range(200)
    ]


def test_a_ring_changed_worker_by_worker_is_the_ring_built_at_once():
    grown = Router("consistent_hash")
    for i in (1, 9, 2, 8, 3):
        grown.add_worker(f"http://w{i}:8000", weight=2.0 if i == 3 else 1.0)
    for i in (9, 8):
        grown.remove_worker(f"http://w{i}:8000")
    grown.remove_worker("http://w1:8000")
    grown.add_worker("http://w1:8000")
    at_once = Router("consistent_hash", ["http://w2:8000"])
    at_once.add_worker("http://w3:8000", weight=2.0)
    at_once.add_worker("http://w1:8000")
    assert homes(grown) == homes(at_once)


def test_a_worker_that_comes_back_to_health_gets_its_keys_back():
    router = Router("consistent_hash", [f"http://w{i}:8000" for i in range(4)])
    before = homes(router)
    router.set_healthy("http://w1:8000", False)
    during = homes(router)
    assert "w1:8000" not in during
    assert all(b in (a, "w1:8000") for a, b in zip(during, before, strict=True))
    router.set_healthy("http://w1:8000", True)
    assert homes(router) == before
