"""cpp/events/event_applier.h against its slow twin: workers, tiers, copies, orphans, adapters, salts."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.kv_picture import Picture, depths
from vllm_router import _core_testing as testing

SIZE = 2
SCOPES = [("m", ""), ("m", "salt"), ("a", "")]
MEDIA = st.sampled_from(["GPU", "GPU", "GPU", "CPU", "DISK"])


def name_of(scope: int, blocks: tuple[int, ...]) -> int:
    """The engine's hash of a block: one for each scope and prefix."""
    return hash((scope, blocks)) % 2**64


@st.composite
def events(draw, size: int, twin: Picture) -> dict:
    kind = draw(
        st.sampled_from(
            ["stored"] * 6 + ["removed"] * 6 + ["placeholder"] * 4 + ["cleared"] * draw(st.booleans())
        )
    )
    if kind == "cleared":
        return {"type": "AllBlocksCleared"}
    scope = draw(st.sampled_from([0, 0, 1, 2]))
    prompt = tuple(draw(st.lists(st.sampled_from([0, 0, 0, 1]), min_size=1, max_size=4)))
    start = draw(st.integers(0, len(prompt) - 1))
    hashes = [name_of(scope, prompt[: i + 1]) for i in range(start, len(prompt))]
    medium = draw(MEDIA)
    # Often of what was there before the batch.
    held = [(name, tier) for name, tiers in twin.held.items() for tier in range(3) if tiers[tier]]
    gone = [name for name, _ in twin.removed.blocks]
    if kind == "removed":
        few = hashes[-1:]
        if held and draw(st.booleans()):
            name, tier = draw(st.sampled_from(held))
            few, medium = [name] * twin.held[name][tier], ["GPU", "CPU", "DISK"][tier]
        return {"type": "BlockRemoved", "block_hashes": few, "medium": medium}
    event = {"type": "BlockStored", "block_hashes": hashes, "block_size": size, "medium": medium}
    if kind == "placeholder":
        if gone and draw(st.booleans()):
            hashes = draw(st.lists(st.sampled_from(gone), min_size=1, max_size=4))
        return event | {"token_ids": [], "block_hashes": hashes}
    adapter, salt = SCOPES[scope]
    event["token_ids"] = [token for token in prompt[start:] for _ in range(size)]
    event["parent_block_hash"] = name_of(scope, prompt[:start]) if start else None
    if adapter != "m":
        event |= {"lora_id": 1, "lora_name": adapter, "extra_keys": [[adapter]] * len(hashes)}
    elif salt and not start:
        event["extra_keys"] = [[salt]]
    return event


@pytest.mark.parametrize("counts_copies", [True, False])
@pytest.mark.parametrize("parts", [1, 2])
@given(data=st.data())
def test_depths_equal_those_of_the_slow_twin_after_each_batch(parts, counts_copies, data):
    size = parts * SIZE
    blocks = testing.ReportedBlocks(SIZE)
    workers = [0, 1, 2]
    blocks.set_workers([(worker, worker) for worker in workers])
    most = data.draw(st.sampled_from([0, 1, 3, 8192]))
    appliers = [
        testing.EventApplier(blocks, worker, counts_copies=counts_copies, max_removed_blocks=most)
        for worker in workers
    ]
    twins = [Picture(counts_copies=counts_copies, max_removed=most) for _ in workers]
    second = {"type": "BlockRemoved", "block_hashes": [0], "medium": "CPU"}
    tiered = data.draw(st.tuples(*[st.sampled_from([[], [second]])] * len(workers)))
    prompts = [[int(digit) for digit in f"{number:04b}"] for number in range(16)]
    for _ in range(data.draw(st.integers(1, 10))):
        worker = data.draw(st.sampled_from([0, 0, 0, 1, 2]))
        batch = data.draw(st.lists(events(size, twins[worker]), min_size=1, max_size=6))
        payload = msgpack.packb([1.0, tiered[worker] + batch])
        appliers[worker].apply(payload)
        twins[worker].apply(testing.decode_kv_batch(payload))
        held = twins[worker].blocks(SIZE, size)
        figures = appliers[worker].figures()
        assert blocks.check() == ""
        assert figures["tiers"] == [sum(tier in on for on in held.values()) for tier in range(3)]
        assert figures["known"] == len(twins[worker].keys)
        assert figures["known_on_gpu"] == sum(tiers[0] > 0 for tiers in twins[worker].held.values())
        assert figures["orphans"] == sum(len(orphan["hashes"]) for orphan in twins[worker].orphans)
        assert figures["unknown_removed"] == twins[worker].negative
        assert (figures["contradictions"], figures["stale_refs"]) == (0, 0)
        for prompt in prompts:
            tokens = [token for token in prompt for _ in range(size)]
            for adapter, salt in SCOPES:
                found = blocks.match(blocks.chain(tokens, adapter, salt)).get(
                    appliers[worker].cache, (0, 0, 0)
                )
                assert found == depths(held, adapter, salt, tuple(tokens), SIZE)


@pytest.mark.parametrize("most", [2, 8192])
def test_late_placeholders_equal_those_of_the_slow_twin(rng, most):
    """A long history of blocks that are stored, removed, and then named on another tier."""
    blocks = testing.ReportedBlocks(1)
    blocks.set_workers([(0, 0), (1, 1)])
    appliers = [testing.EventApplier(blocks, worker, max_removed_blocks=most) for worker in (0, 1)]
    twins = [Picture(max_removed=most) for _ in (0, 1)]
    prompts = [tuple(int(digit) for digit in f"{number:05b}") for number in range(32)]
    came_back = 0
    for step in range(4000):
        worker = rng.randrange(2)
        applier, twin = appliers[worker], twins[worker]
        prompt = rng.choice(prompts)[: rng.randrange(1, 6)]
        names = [name_of(worker, prompt[: i + 1]) for i in range(len(prompt))]
        start = rng.randrange(len(prompt))
        medium = rng.choice(["GPU", "CPU"])
        if rng.random() < 0.4:
            event = {"type": "BlockStored", "block_hashes": names[start:], "block_size": 1, "medium": medium}
            event |= {"token_ids": prompt[start:], "parent_block_hash": names[start - 1] if start else None}
        elif rng.random() < 0.5:
            few = names[: rng.choice([1, 5])]
            event = {"type": "BlockRemoved", "block_hashes": few[::-1], "medium": medium}
        else:
            late = rng.sample(names, len(names)) if rng.random() < 0.5 else names
            event = {"type": "BlockStored", "block_hashes": late, "token_ids": [], "block_size": 0}
            event |= {"medium": "CPU", "parent_block_hash": None}
        known = set(twin.keys)
        payload = msgpack.packb([1.0, [event]])
        applier.apply(payload)
        twin.apply(testing.decode_kv_batch(payload))
        came_back += not event.get("token_ids", [0]) and not set(twin.keys) <= known
        figures = applier.figures()
        assert (figures["known"], figures["stale_refs"]) == (len(twin.keys), 0)
        if step % 8 == 0:
            assert blocks.check() == ""
            held = twin.blocks(1, 1)
            for tokens in prompts:
                found = blocks.match(blocks.chain(tokens, "m")).get(applier.cache, (0, 0, 0))
                assert found == depths(held, "m", "", tokens, 1)
    assert came_back > 50
