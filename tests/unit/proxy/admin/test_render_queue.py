"""cpp/proxy/admin/render_queue.h: which page is rendered next. Row 58."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

MS = 10**6  # nanoseconds
REST = testing.RenderQueue.rest
MOST = testing.RenderQueue.max_pages


def test_a_reader_alone_waits_for_nothing():
    queue = testing.RenderQueue()
    assert (queue.next(0), queue.next_ns) == (None, None)
    assert queue.ask("/metrics", "", 5)
    assert queue.next(5) == ("/metrics", "")
    assert (queue.next(5), queue.next_ns) == (None, None)


def test_all_that_come_during_a_render_share_the_next_one():
    queue = testing.RenderQueue()
    queue.ask("/metrics", "", 0)
    assert queue.next(0) == ("/metrics", "")
    for now in range(1, 4000):
        assert queue.ask("/metrics", "", now)
    queue.rendered("/metrics", 0, 5 * MS)
    due = 5 * MS + REST * 5 * MS
    assert queue.next_ns == due
    assert queue.next(due - 1) is None
    assert queue.next(due) == ("/metrics", "")
    assert queue.next(due) is None


def test_pages_of_one_route_rest_together_and_those_of_another_do_not():
    queue = testing.RenderQueue()
    queue.ask("/scale", "model=a", 0)
    assert queue.next(0) == ("/scale", "model=a")
    queue.rendered("/scale", 0, 10)
    queue.ask("/scale", "model=b", 10)
    queue.ask("/workers", "", 11)
    assert queue.next(11) == ("/workers", "")
    assert queue.next(11) is None
    assert queue.next(10 + REST * 10) == ("/scale", "model=b")


def test_a_quick_page_goes_before_a_slow_one_but_not_for_ever():
    queue = testing.RenderQueue()
    for path, cost in (("/metrics", 100 * MS), ("/health", 1 * MS)):
        queue.rendered(path, 0, cost)
    now = 10**10
    queue.ask("/metrics", "", now)
    queue.ask("/health", "", now + 300 * MS)
    assert queue.next(now + 300 * MS) == ("/health", "")
    queue.ask("/health", "", now + REST * 100 * MS)
    assert queue.next(now + REST * 100 * MS) == ("/metrics", "")


def test_a_page_that_takes_seconds_rests_for_one():
    queue = testing.RenderQueue()
    queue.rendered("/metrics", 0, 60_000 * MS)
    queue.ask("/metrics", "", 0)
    assert queue.next_ns == 60_000 * MS + testing.RenderQueue.longest_rest_ns


def test_so_many_pages_of_a_route_wait_and_others_are_not_kept_out():
    queue = testing.RenderQueue()
    for number in range(MOST):
        assert queue.ask("/scale", f"model={number}", 0)
    assert not queue.ask("/scale", "model=x", 0)
    assert queue.ask("/scale", "model=0", 0)
    queue.rendered("/scale", 0, MS)
    assert queue.ask("/metrics", "", 0)
    assert queue.next(0) == ("/metrics", "")
    assert queue.next(queue.next_ns) == ("/scale", "model=0")
    assert queue.ask("/scale", "model=x", 0)


class Twin:
    """The same by looking at everything."""

    def __init__(self):
        self.waiting, self.cost, self.rests = [], {}, {}

    def ask(self, route, detail, now):
        if any(page == (route, detail) for _, page in self.waiting):
            return True
        if sum(page[0] == route for _, page in self.waiting) == MOST:
            return False
        self.waiting.append((now, (route, detail)))
        return True

    def next(self, now):
        due = {}
        for asked, page in self.waiting:
            if self.rests.get(page[0], 0) <= now and page[0] not in due:
                due[page[0]] = (asked + REST * self.cost.get(page[0], 0), asked, page)
        if not due:
            return None
        order = ["/scale", "/metrics", "/health", "/workers"]  # of the numbers of routes
        _, asked, page = min(due.values(), key=lambda each: (each[0], order.index(each[2][0])))
        self.waiting.remove((asked, page))
        return page

    def rendered(self, route, began, ended):
        self.cost[route] = ended - began
        self.rests[route] = ended + min(REST * (ended - began), testing.RenderQueue.longest_rest_ns)


ROUTES = st.sampled_from(["/metrics", "/health", "/workers", "/scale"])
STEPS = st.lists(
    st.tuples(st.just("ask"), ROUTES, st.sampled_from(["", "a", "b"]))
    | st.tuples(st.just("render"), st.integers(0, 50), st.just(0))
    | st.tuples(st.just("wait"), st.integers(1, 300), st.just(0)),
    max_size=60,
)


@given(STEPS)
def test_it_is_its_twin_and_no_route_takes_more_than_a_fifth_of_the_time(steps):
    queue, twin, now = testing.RenderQueue(), Twin(), 0
    busy = {}
    for what, one, other in steps:
        if what == "ask":
            assert queue.ask(one, other, now) == twin.ask(one, other, now)
        elif what == "wait":
            now += one
        else:
            page = queue.next(now)
            assert page == twin.next(now)
            if page is None:
                continue
            began, now = now, now + one
            queue.rendered(page[0], began, now)
            twin.rendered(page[0], began, now)
            ended, cost = busy.get(page[0], (None, 0))
            assert ended is None or began - ended >= REST * cost
            busy[page[0]] = (now, one)


@pytest.mark.parametrize("path", ["/metrics", "/scale"])
def test_a_clock_that_stands_still_harms_nothing(path):
    queue = testing.RenderQueue()
    for _ in range(3):
        queue.ask(path, "", 0)
        assert queue.next(0) == (path, "")
        queue.rendered(path, 0, 0)
