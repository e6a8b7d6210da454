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
def events(draw, size: int) -> dict:
    kind = draw(
        st.sampled_from(
            ["stored"] * 6 + ["removed"] * 3 + ["placeholder"] + ["cleared"] * draw(st.booleans())
        )
    )
    if kind == "cleared":
        return {"type": "AllBlocksCleared"}
    scope = draw(st.sampled_from([0, 0, 1, 2]))
    prompt = tuple(draw(st.lists(st.sampled_from([0, 0, 0, 1]), min_size=1, max_size=4)))
    start = draw(st.integers(0, len(prompt) - 1))
    hashes = [name_of(scope, prompt[: i + 1]) for i in range(start, len(prompt))]
    medium = draw(MEDIA)
    if kind == "removed":
        return {"type": "BlockRemoved", "block_hashes": hashes[-1:], "medium": medium}
    event = {"type": "BlockStored", "block_hashes": hashes, "block_size": size, "medium": medium}
    if kind == "placeholder":
        return event | {"token_ids": []}
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
    appliers = [testing.EventApplier(blocks, worker, counts_copies=counts_copies) for worker in workers]
    twins = [Picture(counts_copies=counts_copies) for _ in workers]
    prompts = [[int(digit) for digit in f"{number:04b}"] for number in range(16)]
    for _ in range(data.draw(st.integers(1, 6))):
        worker = data.draw(st.sampled_from(workers))
        payload = msgpack.packb([1.0, data.draw(st.lists(events(size), min_size=1, max_size=6))])
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
