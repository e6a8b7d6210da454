"""Slow twin of response_cache/generations.h with steps of 1, and the hash in Redis that routers share."""

MAX_AHEAD = 2**56


class Generations:
    def __init__(self, max_models, max_tracked, max_name_bytes, max_count):
        self.max_models, self.max_tracked = max_models, max_tracked
        self.max_name_bytes, self.max_count = max_name_bytes, max_count
        self.seen = {"*": 0}  # the largest number in Redis, by field
        self.own = {"*": 0}  # increments that Redis does not have

    def of(self, model):
        return self.count("*") + (self.count(model) if model != "*" else 0)

    def count(self, field):
        return self.seen.get(field, 0) + self.own.get(field, 0)

    def tracks(self, field, most):
        """Whether it has a counter now."""
        if field in self.seen:
            return True
        if not field or len(field.encode()) > self.max_name_bytes or len(self.seen) - 1 >= most:
            return False
        self.seen[field] = self.own[field] = 0
        return True

    def bump(self, model):
        if model == "*" or not self.tracks(model, self.max_models):
            return self.bump_all()
        self.own[model] += 1
        return self.of(model)

    def bump_all(self):
        self.own["*"] += 1
        return self.of("")

    def pending(self):
        return [(field, by) for field, by in self.own.items() if by]

    def written(self, field, by, count):
        if self.tracks(field, self.max_tracked) and self.may_be(field, count):
            before = self.count(field)
            self.own[field] -= min(by, self.own[field])
            self.seen[field] = max(before - self.own[field], count)

    def may_be(self, field, count):
        return count <= min(self.max_count, self.seen[field] + MAX_AHEAD)

    def merge(self, fields):
        repairs = []
        for field, count in fields:
            if not self.tracks(field, self.max_tracked):
                continue
            if count is None or not self.may_be(field, count):
                repairs.append((field, "set", self.seen[field] + 1))
                continue
            if self.seen[field] > count:
                repairs.append((field, "add", self.seen[field] - count + 1))
            self.seen[field] = max(self.seen[field], count)
        there = {field for field, _ in fields}
        return repairs + [
            (field, "set if missing", seen)
            for field, seen in self.seen.items()
            if seen and field not in there
        ]


class SharedHash:
    """The hash in Redis; `lose` forgets some of it."""

    def __init__(self):
        self.fields = {}

    def add(self, field, by):
        self.fields[field] = self.fields.get(field, 0) + by
        return self.fields[field]

    def repair(self, field, how, number):
        if how == "add":
            self.add(field, number)
        elif how == "set" or field not in self.fields:
            self.fields[field] = number
