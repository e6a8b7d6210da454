"""cpp/net/buffer.h"""

import pytest

from vllm_router import _core_testing as testing

KIB = 1024


def test_an_empty_buffer_holds_no_memory():
    buffer = testing.Buffer()
    assert (buffer.view, buffer.capacity, buffer.room, buffer.pool_bytes_in_use) == (b"", 0, 0, 0)


@pytest.mark.parametrize(
    ("asked", "given"),
    [(1, 4 * KIB), (4 * KIB, 4 * KIB), (4 * KIB + 1, 8 * KIB), (100_000, 128 * KIB), (3 << 20, 4 << 20)],
)
def test_blocks_come_in_powers_of_two_from_4_kib(asked, given):
    buffer = testing.Buffer()
    buffer.reserve(asked)
    assert (buffer.capacity, buffer.room, buffer.pool_bytes_in_use) == (given, given, given)


def test_bytes_are_kept_while_the_buffer_grows():
    buffer = testing.Buffer()
    expected = b""
    for number in range(200):
        piece = bytes([number]) * (number * 13)
        buffer.append(piece)
        expected += piece
        assert buffer.view == expected


def test_bytes_written_into_the_room_are_there_after_commit():
    buffer = testing.Buffer()
    buffer.reserve(10)
    buffer.receive(b"hello ")
    buffer.receive(b"world")
    assert buffer.view == b"hello world"
    assert buffer.room == 4 * KIB - 11


def test_consuming_moves_the_front_and_the_room_comes_back_when_all_is_consumed():
    buffer = testing.Buffer()
    buffer.append(b"x" * 4096)
    assert buffer.room == 0
    buffer.consume(4000)
    assert (buffer.view, buffer.room) == (b"x" * 96, 0)
    buffer.consume(96)
    assert (buffer.view, buffer.room) == (b"", 4096)


def test_reserve_reuses_what_was_consumed_before_it_takes_a_larger_block():
    buffer = testing.Buffer()
    buffer.append(b"a" * 4000 + b"tail")
    buffer.consume(4000)
    buffer.reserve(4000)
    assert (buffer.view, buffer.capacity, buffer.room) == (b"tail", 4096, 4092)
    buffer.reserve(4093)
    assert (buffer.view, buffer.capacity) == (b"tail", 8192)


def test_clear_keeps_the_block_and_release_gives_it_back():
    buffer = testing.Buffer()
    buffer.append(b"hello")
    buffer.clear()
    assert (buffer.view, buffer.capacity) == (b"", 4096)
    buffer.release()
    assert (buffer.capacity, buffer.pool_bytes_in_use) == (0, 0)
    buffer.append(b"again")
    assert buffer.view == b"again"


def test_moving_takes_the_content_along():
    buffer = testing.Buffer()
    buffer.append(b"hello")
    buffer.move()
    assert buffer.view == b"hello"
    assert buffer.pool_bytes_in_use == 4096  # what it overwrote went back


@pytest.mark.parametrize("size", [1, 4096, 8192, 1 << 20, (1 << 20) + 1])
def test_there_are_readable_bytes_behind_the_content(size):
    buffer = testing.Buffer()
    buffer.append(b"\xff" * size)
    assert buffer.padding_sum() <= 64  # reading them is the point: a sanitizer would object


def test_the_pool_gives_blocks_again_up_to_1_mib():
    capacities, in_use, again = testing.pool_round([1, 5000, 100_000, 1 << 20])
    assert capacities == [4 * KIB, 8 * KIB, 128 * KIB, 1 << 20]
    assert in_use == 0
    assert again == 4


def test_the_pool_keeps_at_most_8_mib():
    _, in_use, again = testing.pool_round([1 << 20] * 20)
    assert in_use == 0
    assert 8 <= again <= 20  # the allocator may hand out an address again by itself
