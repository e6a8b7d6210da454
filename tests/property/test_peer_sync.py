"""cpp/peer_sync/ between several routers, over a bus that loses, repeats, delays and reorders."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.models.peer_loads import NONE, PeerLoads
from vllm_router import _core_testing as testing
from vllm_router import hash_blocks

URLS = ["http://a:8000", "http://b:8000", "http://c:8000"]
ROUTERS = st.integers(0, 2)
COUNTS = st.tuples(
    st.integers(0, 9), st.integers(0, 9), st.integers(0, 9999), st.integers(0, 999), st.integers(0, 2**40)
)
MOST = 2**31 - 1  # what a load counts of others


def clipped(counts):
    return tuple(min(count, MOST) for count in counts)


class Machine(RuleBasedStateMachine):
    """Loads, under everything that a bus can do; then quiet, and all must be right."""

    @initialize()
    def begin(self):
        self.now = 100.0
        self.routers = [self.new(number) for number in (1, 2, 3)]
        self.numbers = [1, 2, 3]
        self.loads = [dict.fromkeys(URLS, NONE) for _ in self.routers]
        self.fleets = [list(URLS) for _ in self.routers]
        self.frames = []  # sender's place, bytes
        self.lives = 3

    def new(self, number):
        router = testing.PeerRouter(number)
        router.declare([(url, "") for url in URLS])
        return router

    @rule(router=ROUTERS, url=st.sampled_from(URLS), counts=COUNTS)
    def work(self, router, url, counts):
        if url in self.fleets[router]:
            self.routers[router].set_load(url, counts)
            self.loads[router][url] = counts

    @rule(seconds=st.sampled_from([0.05, 0.25, 1.0, 2.5, 11.0]))
    def wait(self, seconds):
        self.now += seconds

    @rule(router=ROUTERS)
    def tick(self, router):
        self.frames += [(router, frame) for frame in self.routers[router].write_frames(self.now)]

    @rule(router=ROUTERS, data=st.data(), keep=st.booleans())
    def deliver(self, router, data, keep):
        if not self.frames:
            return
        place = data.draw(st.integers(0, len(self.frames) - 1))
        sender, frame = self.frames[place] if keep else self.frames.pop(place)
        if sender != router:
            self.routers[router].read(frame, self.now)
        self.routers[router].update(self.now)

    @rule(router=ROUTERS)
    def restart(self, router):
        """Another life: another router to its peers, and the former one's loads end."""
        self.lives += 1
        self.routers[router], self.numbers[router] = self.new(self.lives), self.lives
        self.loads[router] = dict.fromkeys(URLS, NONE)
        self.fleets[router] = list(URLS)

    @rule(router=ROUTERS, urls=st.sets(st.sampled_from(URLS), min_size=1))
    def change_fleet(self, router, urls):
        for url in set(self.fleets[router]) - urls:
            self.routers[router].set_load(url, NONE)
            self.loads[router][url] = NONE
        self.routers[router].declare([(url, "") for url in sorted(urls)])
        self.fleets[router] = self.routers[router].urls

    def teardown(self):
        if not hasattr(self, "routers"):
            return
        self.now += 10  # what no router says any more is gone
        for _ in range(2):  # a peer drops what two full frames lack
            self.now += 2
            for router in self.routers:
                for frame in router.write_frames(self.now):
                    for other in self.routers:
                        if other is not router:
                            other.read(frame, self.now)
        for at, router in enumerate(self.routers):
            router.update(self.now)
            others = [loads for place, loads in enumerate(self.loads) if place != at]
            for url in self.fleets[at]:
                sums = [sum(counts) for counts in zip(*(loads[url] for loads in others), strict=True)]
                assert router.peer_load(url) == clipped(sums), url


Machine.TestCase.settings = settings(
    max_examples=settings.default.max_examples * 3 // 5, stateful_step_count=40
)
test_after_quiet_each_router_sees_the_sum_of_the_others_loads = Machine.TestCase


class Ages(RuleBasedStateMachine):
    """One router that hears whole frames of others, against the slow twin at every moment."""

    @initialize()
    def begin(self):
        self.now, self.slow = 1000.0, PeerLoads()
        self.router = testing.PeerRouter(1)
        self.router.declare([(url, "") for url in URLS])
        self.others, self.sequences, self.ended = {}, {}, set()

    @rule(number=st.integers(2, 4), url=st.sampled_from(URLS), counts=COUNTS)
    def hear(self, number, url, counts):
        if number in self.ended:
            return
        if number not in self.others:
            self.others[number] = testing.PeerRouter(number)
            self.others[number].declare([(one, "") for one in URLS])
        self.others[number].set_load(url, counts)
        for frame in self.others[number].write_frames(self.now):
            self.sequences[number] = self.sequences.get(number, 0) + 1
            self.router.read(frame, self.now)
        self.slow.hear(number, self.sequences[number], {url: counts}, self.now)

    @rule(number=st.integers(2, 4))
    def bye(self, number):
        if number not in self.others or number in self.ended:
            return
        self.ended.add(number)  # it does not come back under this number
        for frame in self.others[number].write_bye(self.now):
            self.router.read(frame, self.now)
        self.slow.bye(number)

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.9, 3.3, 10.5]))
    def wait(self, seconds):
        self.now += seconds

    @rule()
    def compare(self):
        self.router.update(self.now)
        for url in URLS:
            told, expected = self.router.peer_load(url), clipped(self.slow.load(url, self.now))
            # A share is rounded by each in its own way.
            assert all(abs(a - b) <= max(1, b >> 30) for a, b in zip(told, expected, strict=True))
        states = {peer["router"]: peer["state"] for peer in self.router.peers(self.now)}
        assert states == {router: self.slow.state(router, self.now) for router in self.slow.peers}


Ages.TestCase.settings = settings(max_examples=settings.default.max_examples * 2 // 5, stateful_step_count=40)
test_loads_age_as_the_slow_twin_says = Ages.TestCase


class Decisions(RuleBasedStateMachine):
    """Decisions of two routers that hear each other at once: both know what one router would know."""

    @initialize(stride=st.sampled_from([1, 2, 4]))
    def begin(self, stride):
        self.now, self.stride = 50.0, stride
        # A policy that goes where most of the prompt is, whatever that worker was sent.
        self.routers = [
            testing.PeerRouter(number, stride_tokens=stride, policy="vllm_cache_aware") for number in (1, 2)
        ]
        for router in self.routers:
            router.declare([(url, "") for url in URLS])
        self.open = []
        self.tell()

    def tell(self):
        self.now += 0.25
        for router, other in (self.routers, self.routers[::-1]):
            for frame in router.write_frames(self.now):
                other.read(frame, self.now)

    @rule(router=st.integers(0, 1), prompt=st.lists(st.sampled_from([0, 0, 0, 1]), min_size=1, max_size=12))
    def choose(self, router, prompt):
        blocks = hash_blocks(prompt, 1).tolist()
        url, _ = self.routers[router].choose(blocks)
        self.routers[router].end(sum(place == router for place, *_ in self.open), "finished")
        self.open.append((router, url, blocks))
        self.tell()

    @rule(router=st.integers(0, 1), data=st.data())
    def ask(self, router, data):
        """A prompt that either was sent goes where its longest part is, to a stride."""
        if not self.open:
            return
        _, _, blocks = data.draw(st.sampled_from(self.open))
        url, matched = self.routers[router].choose(blocks)
        self.routers[router].end(sum(place == router for place, *_ in self.open), "finished")
        self.open.append((router, url, blocks))
        self.tell()
        assert matched >= len(blocks) // self.stride * self.stride


Decisions.TestCase.settings = settings(
    max_examples=settings.default.max_examples * 2 // 5, stateful_step_count=20
)
test_two_routers_know_what_one_would_know = Decisions.TestCase
