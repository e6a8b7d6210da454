"""The slow truth of cpp/conditions/recent_outcomes.h: every attempt, looked through at each question."""

from collections import Counter

SLOT_NS = 10_000_000_000
SLOTS = 6
MAX_MODELS = 8


def code(status):
    if status in (401, 403, 404, 429):
        return str(status)
    return f"{status // 100}xx" if 100 <= status <= 599 else "none"


class RecentOutcomes:
    def __init__(self):
        self.attempts = []  # (worker, name under which it is counted, code, slot)
        self.failures = {}  # worker: (at_ns, status, model)

    def add(self, worker, model, status, now_ns):
        slot = now_ns // SLOT_NS
        newest = max((s for w, _, _, s in self.attempts if w == worker), default=None)
        if newest is not None and slot - newest >= SLOTS:
            self.failures.pop(worker, None)
        # A model is known until another is met and its newest attempt is older than a minute.
        known = {}
        for w, m, _, s in self.attempts:
            if w == worker:
                known[m] = max(known.get(m, s), s)
        known = {m: s for m, s in known.items() if slot - s < SLOTS}
        refused = code(status) in ("401", "403", "404", "429", "4xx")
        if model not in known and (refused or len(model) > 256 or len(known) + 1 >= MAX_MODELS):
            model_counted = ""
        else:
            model_counted = model
        if code(status) in ("5xx", "none"):
            self.failures[worker] = (now_ns, status, model)
        self.attempts.append((worker, model_counted, code(status), slot))

    def sums(self, now_ns):
        slot = now_ns // SLOT_NS
        sums = {}
        for worker, model, of, at in self.attempts:
            if slot - at < SLOTS:
                sums.setdefault(worker, {}).setdefault(model, Counter())[of] += 1
        return sums
