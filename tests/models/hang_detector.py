"""The slow twin of cpp/worker/hang_detector.h, with the face of _core_testing.HangDetector.

It keeps each wait as it was told, in classes of size and duration, and works out every figure anew.
"""

from collections import Counter

MIN_LIMIT, UNKNOWN_TIMES, MIN_OVERDUE, MIN_OVERTAKING, MIN_SAMPLES = 5.0, 6, 2, 8, 20
MOST_LEARNT, REMEMBER, AFTER_DOUBT, UNKNOWN_FACTOR, TYPICAL_FACTOR = 4096, 300.0, 10.0, 2, 2
SIZES, TIMES = 6, 15


def size_class(size):
    classes, limit = 0, 4096
    while size >= limit and classes < SIZES - 1:
        classes, limit = classes + 1, limit * 4
    return classes


def time_class(waited):
    classes, limit = 0, 16
    while int(waited * 1e9) // 1_000_000 >= limit and classes < TIMES - 1:
        classes, limit = classes + 1, limit * 2
    return classes


def time_end(classes):
    return 0.016 * 2**classes


class Worker:
    def __init__(self):
        self.told = Counter()  # (kind, size, time) since the last tick
        self.learnt = {}  # (kind, size) -> Counter of times
        self.silences = Counter()  # of ticks at which requests waited, by time
        self.pending = Counter()  # likewise, of a silence that goes on
        self.busy_since = None
        self.seen_byte = 0.0
        self.clients = []
        self.last_byte = 0.0
        self.joined = None
        self.doubted = None
        self.row = None


class HangDetector:
    def __init__(self, factor=5.0):
        self.factor = factor
        self.progress = {}
        self.known = {}
        self.answered = []  # (group, from, to, Counter of times)
        self.last = 0.0

    def worker(self, worker):
        return self.progress.setdefault(worker, Worker())

    def touch(self, worker, now):
        if now - self.worker(worker).last_byte >= 0.05:
            self.worker(worker).last_byte = now

    def count_first_byte(self, worker, kind, size, waited, client, now):
        one = self.worker(worker)
        one.told[kind, size_class(size), time_class(waited)] += 1
        one.clients = [*one.clients, client][-8:]
        self.touch(worker, now)

    def observe(self, now, fleet):
        answered = {}
        self.known = {}
        for row in fleet:
            one = self.worker(row[0])
            self.known[row[0]] = one
            one.row = row
            if one.joined is None:
                one.joined = now
            if row[4]:
                one.doubted = now
            late = one.doubted is not None and now - one.doubted < AFTER_DOUBT
            for (kind, size, time), count in one.told.items():
                answered.setdefault(row[1], Counter())[time] += count
                if not late:
                    one.learnt.setdefault((kind, size), Counter())[time] += count
            for times in one.learnt.values():
                if sum(times.values()) > MOST_LEARNT:
                    for time in times:
                        times[time] //= 2
            one.told = Counter()
            self.learn_silence(one, row, late, now)
        self.answered += [(group, self.last, now, times) for group, times in answered.items()]
        self.last = now
        self.answered = [entry for entry in self.answered if now - entry[2] <= REMEMBER]
        if self.factor <= 0:
            return []
        return [
            worker
            for worker in sorted(self.known)
            if now - self.silent_since(worker) >= MIN_LIMIT
            and self.known[worker].row[5] >= MIN_OVERDUE
            and self.may_doubt(worker)
            and self.overtaking(worker) >= MIN_OVERTAKING
        ]

    def learn_silence(self, one, row, late, now):
        spoke = one.last_byte != one.seen_byte
        one.seen_byte = one.last_byte
        if late or row[5] < MIN_OVERDUE:
            one.busy_since, one.pending = None, Counter()
            return
        if one.busy_since is None:
            one.busy_since = now
        if spoke:
            one.silences += one.pending
            one.pending = Counter()
            if sum(one.silences.values()) > MOST_LEARNT:
                for time in one.silences:
                    one.silences[time] //= 2
        one.pending[time_class(now - max(one.busy_since, one.last_byte))] += 1

    def silent_since(self, worker):
        return max(self.known[worker].joined, self.known[worker].last_byte)

    def overtaking(self, worker):
        since = self.silent_since(worker)
        return sum(
            count
            for group, begin, _, times in self.answered
            if group == self.known[worker].row[1] and begin >= since
            for time, count in times.items()
            if time_end(time) <= begin - since + 1e-9
        )

    def may_doubt(self, worker):
        _, group, in_rotation, _, in_doubt, _ = self.known[worker].row
        members = [one.row for one in self.known.values() if one.row[1] == group and one.row[2]]
        out = sum(row[3] for row in members)
        return in_rotation and not in_doubt and len(members) >= 2 and out < max(1, len(members) // 2)

    @staticmethod
    def quantile(times, percent):
        total = sum(times.values())
        if total < MIN_SAMPLES:
            return None
        return next(
            time_end(end)
            for end in range(TIMES)
            if sum(times[time] for time in range(end + 1)) * 100 >= total * percent
        )

    def usual(self, workers, kind, size, percent):
        def of(size):
            times = Counter()
            for one in workers:
                times += one.learnt.get((kind, size), Counter())
            return self.quantile(times, percent)

        for smaller in range(size, -1, -1):
            if of(smaller) is not None:
                return of(smaller) * 4 ** (size - smaller)
        return next((of(larger) for larger in range(size + 1, SIZES) if of(larger) is not None), None)

    def limit(self, worker, kind, size, most_size=0):
        if worker not in self.known or self.factor <= 0:
            return None
        own = [self.known[worker]]
        group = [one for one in self.known.values() if one.row[1] == own[0].row[1]]

        def longest(kind, size, percent):
            found = self.usual(group, kind, size, percent)
            return None if found is None else max(found, self.usual(own, kind, size, percent) or 0)

        size, most = size_class(size), size_class(max(size, most_size))
        if longest(kind, size, 95) is None:
            return None
        is_known = self.usual(own, kind, size, 95) is not None
        times = 1 if is_known else UNKNOWN_FACTOR
        limit = TYPICAL_FACTOR * (longest("stream", most, 50) or 0)
        if kind == "plain":
            limit = max(limit, self.factor * longest(kind, size, 95))
        else:
            silences = Counter()
            for one in group:
                silences += one.silences
            usual = max(self.quantile(one, 99) or 0 for one in (silences, own[0].silences))
            limit = max(limit, self.factor * usual)
        return max(MIN_LIMIT * (1 if is_known else UNKNOWN_TIMES), times * limit)

    def judge(self, worker, waits, now):
        if worker not in self.known or not waits or not self.may_doubt(worker):
            return None
        since = self.silent_since(worker)
        largest = max(size for _, size, _, _ in waits)
        overdue = []
        for kind, size, sent, client in waits:
            limit = self.limit(worker, kind, size, largest)
            if limit is not None and now - max(sent, since) >= limit:
                overdue.append((limit, client))
        if len(overdue) < MIN_OVERDUE:
            return None
        clients = {client for _, client in overdue}
        if len(clients) == 1:
            served = [c for other, one in self.progress.items() if other != worker for c in one.clients]
            own = sum(client in clients for client in served)
            if own == 0 or own * 2 < len(served):
                return None
        group = self.known[worker].row[1]
        waiting = sum(
            one.row[5]
            for other, one in self.known.items()
            if other != worker and one.row[1] == group and not one.row[4]
        )
        if self.overtaking(worker) < max(MIN_OVERTAKING, waiting // 4):
            return None
        self.known[worker].row = (*self.known[worker].row[:3], True, True, self.known[worker].row[5])
        return now - since, max(limit for limit, _ in overdue), len(overdue), self.overtaking(worker)
