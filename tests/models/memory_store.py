"""Slow twin of response_cache/memory_store.h: a list in the order of use, and one in the order of age."""


class MemoryStore:
    def __init__(self, entries, size, entry_bytes, swept_per_set):
        self.entries, self.size = entries, size
        self.entry_bytes, self.swept_per_set = entry_bytes, swept_per_set
        self.by_use = []  # (key, value, expires), the least recently used first
        self.by_age = []  # keys, the oldest first
        self.evicted = self.evicted_bytes = self.expired = 0

    def cost(self, value):
        return len(value) + self.entry_bytes

    @property
    def bytes(self):
        return sum(self.cost(value) for _, value, _ in self.by_use)

    def entry(self, key):
        return next((entry for entry in self.by_use if entry[0] == key), None)

    def remove(self, key):
        self.by_use.remove(self.entry(key))
        self.by_age.remove(key)

    def get(self, key, now):
        entry = self.entry(key)
        if entry is None:
            return None
        if entry[2] <= now:
            self.expired += 1
            self.remove(key)
            return None
        self.by_use.remove(entry)
        self.by_use.append(entry)
        return entry[1]

    def set(self, key, value, expires, now):
        if self.entry(key):
            self.remove(key)
        self.sweep(now, self.swept_per_set)
        if expires <= now or self.cost(value) > self.size // 4:
            return False
        self.by_use.append((key, value, expires))
        self.by_age.append(key)
        self.trim()
        return True

    def delete(self, key):
        found = self.entry(key) is not None
        if found:
            self.remove(key)
        return found

    def clear(self):
        count = len(self.by_use)
        self.by_use, self.by_age = [], []
        return count

    def sweep(self, now, most):
        for _ in range(most):
            if not self.by_age or self.entry(self.by_age[0])[2] > now:
                return
            self.expired += 1
            self.remove(self.by_age[0])

    def set_limits(self, entries, size):
        self.entries, self.size = entries, size
        self.trim()

    def trim(self):
        while len(self.by_use) > self.entries or self.bytes > self.size:
            key, value, _ = self.by_use[0]
            self.evicted += 1
            self.evicted_bytes += self.cost(value)
            self.remove(key)

    def stats(self):
        return {
            "entries": len(self.by_use),
            "bytes": self.bytes,
            "evicted": self.evicted,
            "evicted_bytes": self.evicted_bytes,
            "expired": self.expired,
        }
