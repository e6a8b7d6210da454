"""cpp/net/frame_pool.h"""

from vllm_router import _core_testing as testing

LIMITS = testing.frame_pool_limits()


def test_what_was_given_back_last_is_taken_first_by_whoever_needs_that_size():
    first, second = testing.frame_pool_addresses([100, 100])
    assert first != second
    # 65 to 128 bytes are one size; both have been given back, the second after the first.
    assert testing.frame_pool_addresses([65, 128]) == [second, first]


def test_sizes_do_not_share():
    (small,) = testing.frame_pool_addresses([64])
    (next_size,) = testing.frame_pool_addresses([65])
    assert small != next_size
    assert testing.frame_pool_addresses([1]) == [small]


def test_only_so_many_rest():
    size, most = 1000, LIMITS["most_spare"]
    taken = testing.frame_pool_addresses([size] * (most + 5))
    assert len(set(taken)) == most + 5
    again = testing.frame_pool_addresses([size] * most)
    assert again == taken[:most][::-1]


def test_pieces_larger_than_the_largest_come_and_go():
    taken = testing.frame_pool_addresses([LIMITS["largest"] + 1] * 3 + [1 << 20])
    assert len(set(taken)) == 4


def test_what_one_thread_gives_back_another_may_have_taken():
    assert testing.frame_pool_across_threads(1000) == 1000
