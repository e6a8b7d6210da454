"""cpp/index/block_ref.h."""

from tests.rows import for_each_row
from vllm_router import _core_testing as testing


@for_each_row("run", [1, 77, 2**28 - 1])
@for_each_row("generation", [0, 1, 2**16 - 1])
@for_each_row("offset", [0, 1, 16383])
def test_a_ref_packs_its_parts_into_sixty_bits(run, generation, offset):
    bits, *parts, is_root = testing.block_ref(run, generation, offset)
    assert (parts, is_root) == ([run, generation, offset], False)
    assert bits < 2**60


def test_the_root_is_zero():
    assert testing.block_ref(0, 0, 0) == (0, 0, 0, 0, True)
