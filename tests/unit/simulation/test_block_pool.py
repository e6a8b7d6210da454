"""cpp/simulation/block_pool.h."""

import pytest

from vllm_router import _core_testing as testing


def hold(pool: testing.BlockPool, names: list[int], nameless: int = 0) -> list[int]:
    """Places of blocks that are computed at once."""
    places, _ = pool.reserve(names, nameless)
    for place in places:
        pool.set_computed(place)
    return places


def use(pool: testing.BlockPool, names: list[int], nameless: int = 0) -> None:
    places = hold(pool, names, nameless)
    pool.release(places, len(places))


def test_a_block_is_hit_once_it_is_computed():
    pool = testing.BlockPool(8)
    places, hit = pool.reserve([1, 2, 3])
    assert hit == 0
    assert pool.match([1, 2, 3]) == 0
    pool.set_computed(places[0])
    pool.set_computed(places[1])
    assert pool.match([1, 2, 3]) == 2
    assert pool.reserve([1, 2, 3, 4])[1] == 2


def test_shared_blocks_are_held_once():
    pool = testing.BlockPool(4)
    hold(pool, [1, 2])
    assert pool.held == 2
    places, hit = pool.reserve([1, 2, 3])
    assert (hit, pool.held) == (2, 3)
    assert len(set(places)) == 3


def test_too_few_free_places_change_nothing():
    pool = testing.BlockPool(4)
    use(pool, [7, 8])
    hold(pool, [1, 2, 3])
    assert pool.reserve([7, 8]) is None
    assert (pool.held, pool.match([7])) == (3, 1)


def test_the_tail_of_what_was_given_back_first_goes_first():
    pool = testing.BlockPool(4)
    use(pool, [1, 2])
    use(pool, [3, 4])
    use(pool, [5])
    assert (pool.match([1, 2]), pool.match([3, 4])) == (1, 2)
    use(pool, [6])
    assert (pool.match([1]), pool.match([3, 4])) == (0, 2)
    assert pool.evicted == 2


def test_use_makes_recent():
    pool = testing.BlockPool(4)
    use(pool, [1, 2])
    use(pool, [3, 4])
    use(pool, [1, 2])
    use(pool, [5])
    assert (pool.match([1, 2]), pool.match([3, 4])) == (2, 1)


def test_what_is_held_is_never_taken():
    pool = testing.BlockPool(3)
    held = hold(pool, [1])
    for name in range(10, 30):
        use(pool, [name])
    assert pool.match([1]) == 1
    pool.release(held, 1)
    for name in range(10, 30):
        use(pool, [name])
    assert pool.match([1]) == 0


def test_blocks_that_were_not_computed_are_forgotten_and_taken_first():
    pool = testing.BlockPool(3)
    use(pool, [1])
    places, _ = pool.reserve([2, 3])
    pool.release(places, 0)
    assert pool.match([2]) == 0
    use(pool, [4, 5])
    assert pool.match([1]) == 1


def test_nameless_content_takes_places_too():
    pool = testing.BlockPool(3)
    use(pool, [1])
    use(pool, [], nameless=2)
    use(pool, [2])
    assert pool.match([1]) == 0


def test_more_than_everything_gets_everything():
    pool = testing.BlockPool(3)
    places, _ = pool.reserve([1, 2, 3, 4, 5], 2)
    assert len(places) == 3
    assert testing.BlockPool(0).reserve([1, 2], 1) == ([], 0)


def test_a_wipe_forgets_what_nobody_holds():
    pool = testing.BlockPool(4)
    use(pool, [1])
    hold(pool, [2])
    pool.wipe()
    assert (pool.match([1]), pool.match([2]), pool.resident) == (0, 1, 1)


def test_a_name_twice_in_one_request_does_no_harm():
    pool = testing.BlockPool(4)
    use(pool, [1, 1, 2])
    assert pool.held == 0
    assert pool.match([1]) == 1


def test_a_pool_has_fewer_than_2_to_the_32_blocks():
    testing.BlockPool(10**9)  # costs nothing until it is used
    with pytest.raises(TypeError):
        testing.BlockPool(-1)
