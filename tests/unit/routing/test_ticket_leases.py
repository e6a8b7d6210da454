"""cpp/routing/ticket_leases.h: a ticket that its holder forgets ends by itself."""

import gc
import threading

import pytest

from tests.fakes.wire import eventually
from vllm_router import Router, TicketFinishedError
from vllm_router import _core_testing as testing

URL = "http://a:1"


def test_a_ticket_that_is_due_ends_as_of_a_client_that_has_gone():
    tickets = testing.TicketHarness()
    first, second = tickets.make(1, 2, 3), tickets.make(10, 20, 30)
    tickets.set_lease(first, 100)
    tickets.set_lease(second, 200)
    assert tickets.expire(99) == 0
    assert tickets.expire(100) == 1
    assert tickets.finished(first)
    assert tickets.load == (1, 10, 20, 30)
    assert tickets.heard["client_gone"] == 1
    assert tickets.leases == (200, 1)
    tickets.remove_lease(second)
    assert tickets.leases == (None, 1)


def test_whoever_keeps_tickets_for_ever_holds_no_load_for_ever():
    """mending row 52: hosts that keep a reference; looking at the workers is enough."""
    router = Router("least_load", [URL], ticket_lease_secs=0.01)
    kept = [router.select(prompt="Hello") for _ in range(3)]
    eventually(lambda: router.workers[0].load == 0)
    assert router.stats()["tickets_expired"] == 3
    assert [ticket.finished for ticket in kept] == [True] * 3
    assert kept[0].finish() is False
    with pytest.raises(TicketFinishedError, match="its lease has expired"):
        kept[0].renew()
    with pytest.raises(TicketFinishedError):
        kept[0].moved(URL)


def test_a_decision_ends_what_is_due_before_it_looks_at_loads():
    router = Router("least_load", [URL, "http://b:1"], seed=1)
    busy = router.select(prompt="Hello").worker_url  # dropped at once
    held = [router.select(prompt="Hello", among=[busy]) for _ in range(2)]
    for ticket in held:
        ticket.renew(0.005)
    other = router.select(among=["http://b:1" if busy == URL else URL])
    eventually(lambda: router.select(prompt="Hello").worker_url == busy)
    assert not other.finished


def test_a_lease_that_is_renewed_lasts_and_one_that_is_over_counts_nothing():
    router = Router("least_load", [URL], ticket_lease_secs=3600)
    ticket, finished, dropped = (router.select(prompt="Hello") for _ in range(3))
    finished.renew(0.001)
    finished.finish()
    dropped.renew(0.001)
    del dropped
    gc.collect()
    short = router.select(prompt="Hello")
    short.renew(0.001)
    eventually(lambda: short.finished or router.workers[0].load == 1)
    ticket.renew()
    ticket.renew(5)
    assert not ticket.finished
    assert router.stats()["tickets_expired"] == 1
    with ticket:
        pass
    assert router.workers[0].load == 0


def test_what_cannot_be_renewed_says_why():
    router = Router("least_load", [URL])
    ticket = router.select(prompt="Hello")
    with pytest.raises(ValueError, match=r"ticket_lease_secs=60, or call renew\(seconds\)"):
        ticket.renew()
    for seconds in (0, -1, float("nan"), float("inf"), 31_536_001):
        with pytest.raises(ValueError, match="at most 31536000 seconds, a year"):
            ticket.renew(seconds)
    assert router.stats()["tickets_expired"] == 0
    batch = router.select_batch(prompts=["Hello"])
    with pytest.raises(ValueError, match="row of a batch"):
        batch[0].renew(1)
    ticket.finish()
    with pytest.raises(TicketFinishedError):
        ticket.renew(1)
    with pytest.raises(ValueError, match="ticket_lease_secs is -1"):
        Router(ticket_lease_secs=-1)


def test_a_ticket_outlives_the_router_and_its_lease_does_not_matter_then():
    ticket = Router("least_load", [URL], ticket_lease_secs=3600).select(prompt="Hello")
    gc.collect()
    ticket.renew(1)
    assert ticket.finish()


def test_threads_that_finish_and_threads_that_look_agree_on_every_load():
    router = Router("least_load", [URL], ticket_lease_secs=0.001)
    ended = [0] * 4

    def work(mine: int) -> None:
        for _ in range(300):
            ticket = router.select(prompt="Hello")
            ended[mine] += ticket.finish()

    threads = [threading.Thread(target=work, args=(mine,)) for mine in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert router.workers[0].load == 0
    assert sum(ended) + router.stats()["tickets_expired"] == 1200
