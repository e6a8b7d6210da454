"""cpp/holdout/turn.h: the turns of a thread until they are taken."""

from vllm_router import _core_testing as testing


def test_turns_are_taken_once_in_their_order():
    buffer = testing.TurnBuffer()
    for conversation in (3, 1, 2):
        buffer.add(testing.Turn(conversation))
    assert [turn.conversation for turn in buffer.take()] == [3, 1, 2]
    assert buffer.take() == []


def test_turns_without_room_are_counted():
    buffer = testing.TurnBuffer()
    turn = testing.Turn(1)
    for _ in range(buffer.MOST + 3):
        buffer.add(turn)
    assert buffer.dropped == 3
    assert len(buffer.take()) == buffer.MOST
    buffer.add(turn)
    assert buffer.dropped == 3
