"""cpp/proxy/thread/quarantine.h: which requests count for the same client, with workers that die."""

import pytest

from tests.proxy.test_poison import ON, PATH, fragile, wait_for_quarantines

POISON = [b"poison 1", b"poison 2"]


def restrict(harness, router, *fields):
    """Sends two requests that end two workers each; afterwards, the bodies' client is restricted."""
    for count, body in enumerate(POISON, 1):
        assert harness.client(router).ask("POST", PATH, *fields, body=body).status == 502
        wait_for_quarantines(router, count)


def dead_after_one_more(harness, router, workers, *fields):
    """How many workers a third request costs: one if its client is restricted, else two."""
    before = sum(worker.dead for worker in workers)
    assert harness.client(router).ask("POST", PATH, *fields, body=b"poison 3").status == 502
    return sum(worker.dead for worker in workers) - before


@pytest.mark.parametrize(
    ("first", "then", "cost"),
    [
        ([], [], 1),
        ([("X-Forwarded-For", "192.0.2.1")], [("X-Forwarded-For", "192.0.2.1")], 1),
        ([("X-Forwarded-For", "192.0.2.1")], [("X-Forwarded-For", "192.0.2.2")], 2),
        # What stands in front of the last address, the client may have made up.
        ([("X-Forwarded-For", "192.0.2.1")], [("X-Forwarded-For", "192.0.2.9, 192.0.2.1")], 1),
        (
            [("X-Forwarded-For", "192.0.2.1")],
            [("X-Forwarded-For", "192.0.2.9"), ("X-Forwarded-For", "192.0.2.1")],
            1,
        ),
    ],
)
def test_a_client_is_the_address_that_the_nearest_proxy_saw(harness, first, then, cost):
    workers = [fragile(harness) for _ in range(7)]
    router = harness.router(*workers, **ON)
    restrict(harness, router, *first)
    assert dead_after_one_more(harness, router, workers, *then) == cost


def test_without_trust_in_forwarded_addresses_it_is_the_peer(harness):
    workers = [fragile(harness) for _ in range(7)]
    router = harness.router(*workers, trust_forwarded=False, **ON)
    restrict(harness, router, ("X-Forwarded-For", "192.0.2.1"))
    assert dead_after_one_more(harness, router, workers, ("X-Forwarded-For", "192.0.2.2")) == 1


@pytest.mark.parametrize(("key", "cost"), [("one", 1), ("two", 2)])
def test_where_keys_are_checked_it_is_the_key(harness, tmp_path, key, cost):
    keys = tmp_path / "keys"
    keys.write_text("one\ntwo\n")
    keys.chmod(0o600)
    workers = [fragile(harness) for _ in range(7)]
    router = harness.router(*workers, client_api_key_file=str(keys), **ON)
    restrict(harness, router, ("Authorization", "Bearer one"))
    assert dead_after_one_more(harness, router, workers, ("Authorization", f"Bearer {key}")) == cost


def test_ranks_of_one_host_die_together_and_count_once(harness):
    worker = fragile(harness)
    others = [fragile(harness) for _ in range(2)]
    router = harness.router(f"{worker.url}@0", f"{worker.url}@1", *others, **ON)
    # Rank 0 dies with it; then rank 1 cannot be connected to, so it was never there.
    assert harness.client(router).ask("POST", PATH, body=b"poison").status == 502
    wait_for_quarantines(router, 1)
    assert sum(one.dead for one in (worker, *others)) == 2
