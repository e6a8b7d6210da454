"""cpp/simulation/kv_fabric.h against its slow twin: random holds, pulls, leases, reuse and death."""

from hypothesis import given
from hypothesis import strategies as st

from tests.models.kv_fabric import KvFabric as Twin
from vllm_router import _core_testing as testing

BLOCKS = 6
LEASE = 10

names = st.integers(0, 9).map(lambda number: f"r{number}")
contents = st.lists(st.integers(1, 2**64 - 1), max_size=4)
numbers = st.lists(st.integers(0, BLOCKS + 1), max_size=4)
steps = st.one_of(
    st.tuples(st.just("hold"), contents),
    st.tuples(st.just("use"), contents),
    st.tuples(st.just("pull"), names),  # of the blocks that it was told
    st.tuples(st.just("pull_blocks"), st.tuples(names, numbers)),
    st.tuples(st.just("release"), names),
    st.tuples(st.just("advance"), st.integers(0, LEASE)),
    st.tuples(st.just("advance_clock"), st.integers(0, LEASE)),
)


@given(st.lists(steps, max_size=60), st.booleans())
def test_the_fabric_does_what_its_twin_does(sequence, dies):
    fabric = testing.KvFabric()
    fabric.attach("e", blocks=BLOCKS, lease=LEASE)
    twin = Twin(BLOCKS, LEASE)
    told: dict[str, list[int]] = {}
    for number, (step, value) in enumerate(sequence):
        if dies and number == 40:
            fabric.detach("e")
            twin.detach()
        if step == "hold":
            name = f"r{len(told)}"
            blocks = twin.hold(name, value)
            assert fabric.hold("e", name, value) == blocks
            if blocks is not None:
                told[name] = blocks
        elif step == "use":
            fabric.use("e", value)
            twin.use(value)
        elif step == "release":
            fabric.release("e", value)
            twin.release(value)
        elif step in ("pull", "pull_blocks"):
            name, blocks = (value, told.get(value, [])) if step == "pull" else value
            assert fabric.pull("e", name, blocks) == twin.pull(name, blocks)
        else:
            fabric.advance_clock(value) if step == "advance_clock" else fabric.advance("e", value)
            twin.advance(value)
        assert fabric.counters("e") == twin.counters()
