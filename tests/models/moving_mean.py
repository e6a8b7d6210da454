"""The slow twin of cpp/policy/moving_mean.h."""

import struct


def as_float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


class MovingMean:
    """The plain mean of the first `memory` values; each later one moves it by its part of the difference."""

    def __init__(self, memory: int = 100) -> None:
        self.memory = memory
        self.count = 0
        self.value = 0.0

    def learn(self, seen: float) -> None:
        self.count = min(self.count + 1, self.memory)
        self.value = as_float32(self.value + (seen - self.value) / self.count)
