"""The twin of cpp/worker/bytes_per_token.h: the mean over everything it was told, written out."""

from __future__ import annotations

PRIOR, MEMORY = 1024, 65536


class BytesPerToken:
    def __init__(self) -> None:
        self.value = 4.0
        self.counted = PRIOR

    def learn(self, nbytes: int, tokens: int) -> None:
        if nbytes == 0 or tokens == 0:
            return
        found = min(max(nbytes / tokens, 1.0), 16.0)
        added = min(tokens, MEMORY)
        self.value = (self.value * self.counted + found * added) / (self.counted + added)
        self.counted = min(self.counted + added, MEMORY)
