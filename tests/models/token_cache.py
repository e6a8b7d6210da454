"""Slow twin of routing/token_cache.h: texts themselves instead of names, a list instead of tables."""

ITEM = "\x1e"


def beginnings(text, most_items):
    """The texts that `text` may continue: its beginnings up to a whole item, the longest last."""
    ends = [i for i in range(1, len(text)) if text[i] == ITEM][:most_items]
    return [text[:end] for end in ends] + [text]


class TokenCache:
    def __init__(self, capacity_bytes, entry_bytes, most_items):
        self.capacity_bytes, self.entry_bytes, self.most_items = capacity_bytes, entry_bytes, most_items
        self.entries = []  # (key, ids), the least recently used first
        self.evicted = 0

    def cost(self, ids):
        return self.entry_bytes + 4 * len(ids)

    @property
    def bytes(self):
        return sum(self.cost(ids) for _, ids in self.entries)

    def find(self, model, call, text):
        for beginning in reversed(beginnings(text, self.most_items)):
            for entry in self.entries:
                if entry[0] == (model, call, beginning):
                    self.entries.remove(entry)
                    self.entries.append(entry)
                    return entry[1], len(beginning)
        return None

    def store(self, model, call, text, ids):
        key = (model, call, text)
        self.entries = [entry for entry in self.entries if entry[0] != key]
        if self.cost(ids) > self.capacity_bytes:
            return
        while self.bytes + self.cost(ids) > self.capacity_bytes:
            self.entries.pop(0)
            self.evicted += 1
        self.entries.append((key, ids))
