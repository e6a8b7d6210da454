"""PdRegistrations against its slow twin, in any order of messages and silences."""

from hypothesis import given
from hypothesis import strategies as st

from tests.models import pd_registrations as twin
from vllm_router import _core_testing as testing

SECOND = 10**9
WORKERS = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["prefill", "prefill", "decode"]),
        "http_address": st.sampled_from(["a:1", "b:1", "c:1", "d:1"]),
        "zmq_address": st.sampled_from(["a:2", "a:2", "a:3"]),
        "mode": st.sampled_from([None, "READ", "READ", "WRITE"]),
        "tp_size": st.sampled_from([1, 1, 2]),
        "dp_size": st.just(1),
    }
)
STEPS = st.tuples(
    st.sampled_from([0, 0, 1, SECOND, 3 * SECOND, 5 * SECOND - 1, 5 * SECOND, 20 * SECOND, -SECOND]),
    st.none() | st.just("due") | WORKERS,
)


@given(
    st.sampled_from([SECOND, 5 * SECOND, 20 * SECOND, 60 * SECOND]),
    st.integers(1, 4),
    st.lists(STEPS, max_size=40),
)
def test_any_order_does_what_the_twin_does(forget_ns, max_instances, steps):
    ours = testing.PdRegistrations(forget_ns, max_instances)
    slow = twin.PdRegistrations(forget_ns, max_instances)
    now = 0
    added = set()
    for wait, what in steps:
        now += wait
        if what == "due":
            now = max(now, slow.next_expiry_ns() or now)
            changes = ours.expire(now)
            assert changes == slow.expire(now)
            assert changes != [] or slow.workers == []
        elif what is None:
            changes = ours.expire(now)
            assert changes == slow.expire(now)
        else:
            result, changes = ours.register(what, now)
            assert (result, changes) == slow.register(what, now)
        for kind, told in changes:
            address = told["http_address"]
            assert (address in added) == (kind != "added"), "each worker is added first, and removed once"
            added.add(address)
            if kind == "removed":
                added.discard(address)
        assert ours.size() == len(slow.workers) == len(added) <= max_instances
        assert ours.mode() == slow.mode()
        assert ours.next_expiry_ns() == slow.next_expiry_ns()
        for role in ("prefill", "decode"):
            assert ours.eligible(role) == slow.eligible(role)
