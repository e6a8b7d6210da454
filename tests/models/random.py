"""The slow twin of cpp/base/random.h: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""

MASK = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15


class Random:
    """One stream of 64-bit numbers; the state is a counter."""

    def __init__(self, seed: int) -> None:
        self.state = seed & MASK

    def next(self) -> int:
        """A number in [0, 2**64)."""
        self.state = (self.state + GAMMA) & MASK
        z = self.state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
        return z ^ (z >> 31)

    def below(self, n: int) -> int:
        """A number in [0, n), by exactly one draw."""
        return self.next() * n >> 64
