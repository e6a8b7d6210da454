"""cpp/proxy/peer_sync/peer_streams.h: rounds with a real Redis, and replies that no Redis gives."""

import io
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.redis_server import RedisServer
from tests.models.rate_lease import Bucket
from tests.models.resp import read_reply
from tests.rows import for_each_row
from vllm_router import _core_testing as testing

MS = 10**6  # nanoseconds
NOW = 5_000 * MS  # of a router's own clock
AT = b"*2\r\n$10\r\n1700000000\r\n$6\r\n500000\r\n"
AT_MS = 1_700_000_000_500
OK, NIL, NONE, ZERO = b"+OK\r\n", b"$-1\r\n", b"*0\r\n", b":0\r\n"
JUNK = (OK, NIL, NONE, ZERO, b":-9223372036854775808\r\n", b"$0\r\n\r\n", b"*-1\r\n", b"*1\r\n*1\r\n*0\r\n")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with RedisServer(tmp_path_factory.mktemp("redis")) as redis:
        yield redis


@pytest.fixture
def redis(server):
    server.call("FLUSHALL")
    return server


def text(value):
    data = value.encode() if isinstance(value, str) else value
    return b"$%d\r\n%s\r\n" % (len(data), data)


def array(*values):
    return b"*%d\r\n" % len(values) + b"".join(values)


def entry(name, frame=b"frame", field="f"):
    return array(text(name), array(text(field), text(frame)))


class Router:
    """The streams as one router has them; its clock stands still."""

    def __init__(self, number=1, fleet="f", fingerprint=7):
        self.number = number
        self.streams = testing.PeerStreams(fleet, number, fingerprint)

    def replies(self, data, *adds):
        """A round with the time and these, to which `data` is the reply, or what makes it of the commands."""
        made = testing.PeerRound()
        testing.PeerStreams.add_time(made)
        for add, *values in adds:
            getattr(self.streams, f"add_{add}")(*values, made)
        if callable(data):
            data = data(made.commands, made.replies)
        return self.streams.take(made, NOW, data)

    def commands(self, *adds):
        made = testing.PeerRound()
        for add, *values in adds:
            getattr(self.streams, f"add_{add}")(*values, made)
        stream = io.BytesIO(made.commands)
        return [read_reply(stream) for _ in range(made.replies)]

    def learn(self, members, time_reply=AT):
        """The time, then who is a member; frames of known ones are none."""
        if not self.streams.knows_time:
            assert self.replies(time_reply)["error"] == ""
        listed = array(*map(text, members))
        return self.replies(time_reply + NONE * min(8, self.streams.others) + listed, ("reads", NOW))

    def positions(self):
        return {words[1][-16:].decode(): words[2].decode() for words in self.commands(("reads", NOW))[:-1]}

    def with_redis(self, redis):
        """Rounds are sent to it."""

        def ask(*adds):
            def send(commands, count):
                redis.call("PING")
                redis._socket.sendall(commands)
                return b"".join(raw_reply(redis._replies) for _ in range(count))

            return self.replies(send, *adds)

        return ask


def raw_reply(stream):
    line = stream.readline()
    if line[:1] == b"$" and line != b"$-1\r\n":
        return line + stream.read(int(line[1:]) + 2)
    if line[:1] == b"*":
        return line + b"".join(raw_reply(stream) for _ in range(int(line[1:])))
    return line


def hexed(number):
    return f"{number:016x}"


def test_a_number_tells_when_the_router_started():
    number = testing.PeerStreams.draw_router(1_700_000_000_123, 2**64 - 1)
    assert testing.PeerStreams.started_ms(number) == 1_700_000_000_123
    assert number < testing.PeerStreams.draw_router(1_700_000_000_124, 0)


def _window():
    return b"%d" % (AT_MS + 60_000), b"%d" % (AT_MS - 60_000)


def test_the_commands_of_a_round():
    one = Router(number=0xAB)
    one.learn([hexed(9), hexed(0xAB)])
    assert one.commands(("frames", ["x", "y"], NOW), ("reads", NOW), ("snapshot_read",), ("leave",)) == [
        [b"XADD", b"vr:{f}:x:00000000000000ab", b"MINID", b"~", b"%d" % (AT_MS - 30_000), b"*", b"f", b"x"],
        [b"XADD", b"vr:{f}:x:00000000000000ab", b"MINID", b"~", b"%d" % (AT_MS - 30_000), b"*", b"f", b"y"],
        [b"PEXPIRE", b"vr:{f}:x:00000000000000ab", b"60000"],
        [b"ZADD", b"vr:{f}:members", b"%d" % AT_MS, b"00000000000000ab"],
        [b"ZREMRANGEBYSCORE", b"vr:{f}:members", b"-inf", b"%d" % (AT_MS - 600_000)],
        [b"XRANGE", b"vr:{f}:x:0000000000000009", b"(0-0", b"+", b"COUNT", b"8"],
        [b"ZREVRANGEBYSCORE", b"vr:{f}:members", *_window(), b"LIMIT", b"0", b"256"],
        [b"GET", b"vr:{f}:snap:0000000000000007"],
        [b"ZREM", b"vr:{f}:members", b"00000000000000ab"],
    ]
    # The time goes on by the router's own clock until Redis tells it again.
    assert one.streams.redis_ms(NOW + 250 * MS) == AT_MS + 250


def test_frames_of_one_are_read_by_all_and_once(redis):
    one, other, third = (Router(number) for number in (1, 2, 3))
    asks = [router.with_redis(redis) for router in (one, other, third)]
    for ask in asks:
        assert ask()["error"] == ""
        assert ask(("frames", [], NOW))["error"] == ""
    frames = [b"a" * 100, b"\0\r\n$3\r\n", b""]
    assert asks[0](("frames", frames, NOW), ("reads", NOW))["error"] == ""
    for ask in asks[1:]:
        assert ask(("reads", NOW))["frames"] == []  # it has just heard of the others
        heard = ask(("reads", NOW))
        assert (heard["frames"], heard["bytes"], heard["more"]) == (frames, 107, False)
        assert ask(("reads", NOW))["frames"] == []
    assert one.streams.others == other.streams.others == 2


def test_many_frames_take_several_rounds_in_their_order(redis):
    one, other = Router(1), Router(2)
    write, read = one.with_redis(redis), other.with_redis(redis)
    write()
    read()
    frames = [b"%d" % number for number in range(40)]
    write(("frames", frames, NOW))
    read(("reads", NOW))
    rounds = [read(("reads", NOW)) for _ in range(6)]
    assert [heard["more"] for heard in rounds] == [True] * 5 + [False]
    assert [frame for heard in rounds for frame in heard["frames"]] == frames


def test_after_a_break_it_goes_on_where_it_was(redis):
    one, other = Router(1), Router(2)
    write, read = one.with_redis(redis), other.with_redis(redis)
    write()
    read()
    write(("frames", [b"1"], NOW))
    read(("reads", NOW))
    assert read(("reads", NOW))["frames"] == [b"1"]
    write(("frames", [b"2"], NOW))
    before = other.positions()
    other.commands(("reads", NOW))  # sent, and never replied to
    refused = b"-LOADING Redis is loading the dataset in memory\r\n"
    heard = other.replies(refused * 3, ("reads", NOW))
    assert "LOADING" in heard["error"]
    assert other.positions() == before
    write(("frames", [b"3"], NOW))
    assert read(("reads", NOW))["frames"] == [b"2", b"3"]


def test_a_router_that_leaves_is_read_once_more(redis):
    one, other = Router(1), Router(2)
    write, read = one.with_redis(redis), other.with_redis(redis)
    write()
    read()
    write(("frames", [], NOW))
    read(("reads", NOW))
    read(("reads", NOW))
    write(("frames", [b"bye"], NOW), ("leave",))
    redis.call("PING")
    assert read(("reads", NOW))["frames"] == [b"bye"]
    for others in (1, 0, 0):
        assert other.streams.others in (others, 0)
        assert read(("reads", NOW))["frames"] == []
    assert other.streams.others == 0


def test_all_that_a_router_said_before_it_left_is_read():
    one = Router()
    one.learn([hexed(9)])
    full = array(*(entry(f"{AT_MS}-{number}", b"%d" % number) for number in range(16)))
    heard = one.replies(AT + full + NONE, ("reads", NOW))
    assert heard["more"]
    full = array(*(entry(f"{AT_MS}-{number}", b"%d" % number) for number in range(16, 32)))
    heard = one.replies(AT + full + NONE, ("reads", NOW))
    assert heard["more"]  # more than two rounds read
    heard = one.replies(AT + array(entry(f"{AT_MS}-32", b"bye")) + NONE, ("reads", NOW))
    assert heard["frames"] == [b"bye"]
    assert one.streams.others == 0


def test_a_bye_is_read_however_many_others_are_read_before(redis):
    router = Router()
    ask = router.with_redis(redis)
    ask()
    others = range(2, 42)
    for number in others:
        redis.call("ZADD", "vr:{f}:members", str(router.streams.redis_ms(NOW)), hexed(number))
    while router.streams.others < len(others):
        ask(("reads", NOW))
    for number in others:
        redis.call("XADD", f"vr:{{f}}:x:{hexed(number)}", "*", "f", f"bye {number}")
    redis.call("DEL", "vr:{f}:members")
    heard = []
    for _ in range(10):
        heard += ask(("reads", NOW))["frames"]
    assert sorted(heard) == sorted(b"bye %d" % number for number in others)
    assert router.streams.others == 0


def test_a_stream_that_no_connection_can_take_is_found_and_left_alone():
    one = Router()
    names = [hexed(number) for number in range(2, 22)]
    one.learn(names)

    def pass_over(bad):
        """Rounds until all were read or one failed; the routers of each."""
        rounds = []
        while True:
            made = testing.PeerRound()
            one.streams.add_time(made)
            one.streams.add_reads(NOW, made)
            stream = io.BytesIO(made.commands)
            asked = [read_reply(stream) for _ in range(made.replies)]
            rounds.append([int(words[1][-16:], 16) for words in asked[1:-1]])
            if bad in rounds[-1]:
                return rounds, one.streams.overflowed(made, NOW)
            listed = array(*map(text, names))
            if not one.streams.take(made, NOW, AT + NONE * len(rounds[-1]) + listed)["more"]:
                return rounds, None

    assert pass_over(13) == ([[*range(2, 10)], [*range(10, 18)]], "")
    assert pass_over(13) == ([[10], [11], [12], [13]], "vr:{f}:x:000000000000000d")
    # The others are read as before, and a lease between the rounds changes nothing.
    assert pass_over(13) == ([[14, 15, 16, 17, 18, 19, 20, 21]], None)
    assert pass_over(13) == ([[2, 3, 4, 5, 6, 7, 8, 9], [10, 11, 12, 14, 15, 16, 17, 18], [19, 20, 21]], None)
    names.remove(hexed(13))
    pass_over(0)
    assert one.streams.others == 19


def test_a_router_that_left_a_key_of_another_type_is_forgotten():
    one = Router()
    one.learn([hexed(9)])
    one.learn([])
    assert one.streams.others == 1
    one.replies(AT + b"-WRONGTYPE no\r\n" + NONE, ("reads", NOW))
    assert one.streams.others == 0


def test_a_snapshot_and_where_streams_are_read_after_it(redis):
    one, other = Router(1), Router(2)
    write, read = one.with_redis(redis), other.with_redis(redis)
    write()
    assert read(("snapshot_read",))["snapshot"] == b""
    snapshot = bytes(range(256)) * 1000
    assert write(("snapshot", snapshot))["error"] == ""
    heard = read(("snapshot_read",))
    assert (heard["snapshot"], heard["bytes"]) == (snapshot, len(snapshot))
    assert 0 < redis.call("PTTL", "vr:{f}:snap:0000000000000007") <= 600_000
    assert Router(3, fingerprint=8).with_redis(redis)(("snapshot_read",))["snapshot"] == b""
    other.streams.start_at(AT_MS)
    other.learn([hexed(9)])
    assert other.positions() == {hexed(9): f"({AT_MS}-0"}
    later = Router()
    later.streams.start_at(-5)
    later.learn([hexed(9)])
    assert later.positions() == {hexed(9): "(0-0"}


def test_streams_and_members_do_not_stay_for_ever(redis):
    one = Router(1)
    write = one.with_redis(redis)
    write()
    redis.call("ZADD", "vr:{f}:members", "1", hexed(8))
    write(("frames", [b"x"], NOW))
    assert 0 < redis.call("PTTL", f"vr:{{f}}:x:{hexed(1)}") <= 60_000
    assert redis.call("ZRANGE", "vr:{f}:members", "0", "-1") == [hexed(1).encode()]
    old = f"{int(time.time() * 1000) - 100_000}-0"
    redis.call("DEL", f"vr:{{f}}:x:{hexed(1)}")
    redis.call(
        "EVAL",
        "for i = 1, 2000 do redis.call('XADD', KEYS[1], ARGV[1] .. i, 'f', 'x') end",
        "1",
        f"vr:{{f}}:x:{hexed(1)}",
        old[:-1],
    )
    write(("frames", [b"x"], NOW))
    assert redis.call("XLEN", f"vr:{{f}}:x:{hexed(1)}") < 200  # to a node of the stream


def test_at_most_256_routers_are_read():
    one = Router(number=2**40)
    heard = one.learn([hexed(number) for number in range(10_000)])
    assert heard["error"] == ""
    assert one.streams.others == 256
    one.learn([hexed(number) for number in range(9_000, 9_256)])
    assert one.streams.others == 256
    one.learn([])
    for left in range(256, -1, -8):
        assert one.streams.others == left  # eight are read once more in each round
        one.learn([])


def test_so_many_are_read_in_one_round_and_the_others_in_the_next():
    """Replies to one round are not too large together, however much each router says."""
    one = Router(number=2**40)
    one.learn([hexed(number) for number in range(20)])
    read = []
    for expected in (True, True, False):
        made = one.commands(("reads", NOW))[:-1]
        read += [words[1][-16:].decode() for words in made]
        assert len(made) == (8 if expected else 4)
    assert read == [hexed(number) for number in range(20)]


@pytest.mark.parametrize(
    "name",
    ["", "1", "g" * 16, "0" * 17, "0x00000000000001", "-000000000000001", " " * 16, "é" * 8, "\0" * 16],
)
def test_names_that_are_no_routers_are_left_out(name):
    one = Router()
    one.learn([name, hexed(9)])
    assert list(one.positions()) == [hexed(9)]


def test_it_does_not_read_itself():
    one = Router(number=9)
    one.learn([hexed(9)])
    assert one.streams.others == 0


BAD_IDS = [
    "", "-", "x-0", "-1-0", "5", "99999999999999999999-0", "1" * 60 + "-0", " 5-0", "+5-0", "5-", "5-x",
    "5-0x",
    "5--1", "5-99999999999999999999", "5-0\r\nFLUSHALL", "5-0 ", "5-\0",
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_IDS)
def test_an_id_that_is_none_moves_no_position(redis, name):
    one = Router()
    one.learn([hexed(9)])
    frames = array(entry("4-0", b"a"), entry(name, b"b"))
    assert one.replies(AT + frames + array(text(hexed(9))), ("reads", NOW))["frames"] == [b"a"]
    assert one.positions() == {hexed(9): "(4-0"}
    # Redis takes the command.
    assert one.with_redis(redis)(("reads", NOW))["error"] == ""


ENTRIES = [
    OK, NIL, ZERO, NONE, text("5-0"), array(text("5-0")), array(text("5-0"), NIL, NIL),
    array(NIL, array(text("f"), text("x"))), array(ZERO, ZERO), array(array(text("5-0")), array(text("f"))),
    array(b"-ERR x\r\n", array(text("f"), text("x"))),
]  # fmt: skip


@for_each_row("bad", ENTRIES)
def test_an_entry_that_is_none_is_left_out(bad):
    one = Router()
    one.learn([hexed(9)])
    frames = array(bad, entry("6-0", b"good"))
    assert one.replies(AT + frames + array(text(hexed(9))), ("reads", NOW))["frames"] == [b"good"]
    assert one.positions() == {hexed(9): "(6-0"}


@pytest.mark.parametrize("fields", [NIL, NONE, array(text("f")), array(text("g"), text("x")), OK, ZERO])
def test_an_entry_without_a_frame_is_passed(fields):
    one = Router()
    one.learn([hexed(9)])
    frames = array(array(text("5-0"), fields))
    assert one.replies(AT + frames + array(text(hexed(9))), ("reads", NOW))["frames"] == []
    assert one.positions() == {hexed(9): "(5-0"}


@pytest.mark.parametrize("bad", JUNK)
def test_replies_of_other_kinds_are_none(bad):
    one = Router()
    assert one.replies(bad)["error"] == ""
    assert not one.streams.knows_time
    one.learn([hexed(9)])
    frames = ("frames", ["x"], NOW)
    heard = one.replies(
        AT + bad * 8, frames, ("reads", NOW), ("snapshot_read",), ("lease", "requests", 10, 5)
    )
    assert heard["error"] == ""
    assert (heard["frames"], heard["snapshot"]) == ([], b"OK" if bad == OK else b"")
    assert one.streams.knows_time


ADDS = {
    "TIME": (),
    "XADD": ("frames", ["x"], NOW),
    "XRANGE": ("reads", NOW),
    "GET": ("snapshot_read",),
    "SET": ("snapshot", b"x"),
    "EVAL": ("lease", "requests", 10, 5),
    "ZREM": ("leave",),
}


@for_each_row("code", ["NOPERM", "READONLY", "OOM", "WRONGTYPE", "ERR"])
@for_each_row("command", ADDS)
def test_an_error_is_said_with_its_command_and_the_other_replies_count(code, command):
    one = Router()
    one.learn([hexed(9)])
    error = f"-{code} the key 'SECRET' says no\r\n".encode()
    adds = [ADDS[command]] if ADDS[command] else []

    def reply(_, count):
        assert count > 1 or command == "TIME"
        words = [words[0].decode() for words in one.commands(*adds)]
        assert words == [] or command in words
        return b"".join(
            error
            if word == command
            else array(entry("5-0"))
            if word == "XRANGE"
            else NONE
            if word[0] == "Z"
            else OK
            for word in ["TIME", *words, "XRANGE", "ZREVRANGEBYSCORE"]
        )

    if command == "XRANGE":
        heard = one.replies(AT + error + array(text(hexed(9))), ("reads", NOW))
        assert heard["frames"] == []
    else:
        heard = one.replies(reply, *adds, ("reads", NOW))
        assert heard["frames"] == [b"frame"]
    of_one = command == "XRANGE" and code in ("WRONGTYPE", "ERR")
    said, unsaid = (heard[name] for name in (("unread", "error") if of_one else ("error", "unread")))
    assert said.startswith(f"replied {code}")
    assert said.endswith(f"(to {command} of router {hexed(9)})" if of_one else f"(to {command})")
    assert "SECRET" not in said
    assert unsaid == ""
    assert heard["leased"] is None or command != "EVAL"
    assert one.streams.others == 1


def test_a_stream_of_another_type_keeps_none_of_the_others_from_being_read(redis):
    one, other, third = (Router(number) for number in (1, 2, 3))
    asks = [router.with_redis(redis) for router in (one, other, third)]
    for ask in asks:
        ask()
        ask(("frames", [], NOW))
    asks[0](("reads", NOW))
    redis.call("DEL", f"vr:{{f}}:x:{hexed(2)}")
    redis.call("SET", f"vr:{{f}}:x:{hexed(2)}", "x")
    asks[2](("frames", [b"heard"], NOW))
    heard = asks[0](("reads", NOW))
    assert (heard["error"], heard["frames"]) == ("", [b"heard"])
    assert heard["unread"].startswith("replied WRONGTYPE")
    assert heard["unread"].endswith(f"(to XRANGE of router {hexed(2)})")
    assert one.streams.others == 2


def test_a_clock_that_was_set_back_makes_it_read_from_the_start():
    one = Router()
    one.learn([hexed(9), hexed(10)])
    frames = array(entry(f"{AT_MS + 900}-0")) + array(entry(f"{AT_MS + 5_000}-3"))
    one.replies(AT + frames + array(text(hexed(9)), text(hexed(10))), ("reads", NOW))
    assert one.positions() == {hexed(9): f"({AT_MS + 900}-0", hexed(10): f"({AT_MS + 5_000}-3"}
    one.learn([hexed(9), hexed(10)])
    assert one.positions() == {hexed(9): f"({AT_MS + 900}-0", hexed(10): "(0-0"}


SECONDS = ["0", "-1", str(2**63 - 1), str(-(2**63)), str(2**64), "x", "", str(2**63 // 1000), "1" * 40]


@for_each_row("seconds", SECONDS)
@for_each_row("micros", ["0", "999999", str(2**63 - 1), "-5", "x"])
def test_a_time_that_is_none_harms_nothing(seconds, micros):
    one = Router()
    hostile = array(text(seconds), text(micros))
    assert one.replies(hostile)["error"] == ""
    if one.streams.knows_time:
        assert 0 <= one.streams.redis_ms(NOW) < 2**53
        for words in one.commands(("frames", ["x"], NOW), ("reads", NOW)):
            assert words
    one.learn([hexed(9)])
    assert one.streams.redis_ms(NOW) == AT_MS
    one.replies(hostile)
    assert 0 <= one.streams.redis_ms(NOW) < 2**53


def resp():
    leaf = st.one_of(
        st.sampled_from(JUNK),
        st.binary(max_size=20).map(text),
        st.integers(-(2**63), 2**63 - 1).map(lambda n: b":%d\r\n" % n),
        st.sampled_from([entry("5-0"), text(hexed(9)), text("5-0"), AT, b"-NOPERM x\r\n"]),
    )  # fmt: skip
    return st.recursive(
        leaf, lambda inner: st.lists(inner, max_size=3).map(lambda v: array(*v)), max_leaves=6
    )


def depth_of(data):
    def depth(value):
        return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0

    return depth(read_reply(io.BytesIO(data)))


@settings(max_examples=300)
@given(st.lists(st.lists(resp(), min_size=12, max_size=12), max_size=4))
def test_no_reply_harms(rounds):
    one = Router()
    one.learn([hexed(9)])
    adds = [("frames", ["x"], NOW), ("reads", NOW), ("snapshot_read",), ("lease", "requests", 10, 5)]
    for replies in rounds:
        kept = [reply for reply in replies if depth_of(reply) <= 3]
        one.replies(lambda _, count, kept=kept: b"".join((kept + [NIL] * count)[:count]), *adds)
        assert one.streams.others <= 256
        for position in one.positions().values():
            ms, _, sequence = position.removeprefix("(").partition("-")
            assert ms.isdigit()
            assert sequence.isdigit()


# The limit of a fleet. Redis tells the time itself, so what a bucket gives is within what its twin gives
# at the time before and the time after.


def lease(router, redis, rate, tokens, name="requests"):
    heard = router.with_redis(redis)(("lease", name, rate, tokens))
    assert heard["error"] == ""
    return heard["leased"]


def micros(redis):
    seconds, rest = redis.call("TIME")
    return int(seconds) * 1_000_000 + int(rest)


DUE = "vr:{f}:lim:requests"
QUEUE = "vr:{f}:lim:requests:queue"


def test_a_bucket_has_half_a_seconds_worth_and_at_least_one(redis):
    for rate, worth in ((1, 1), (2, 1), (3, 1), (10, 5), (1000, 500), (1_000_000, 500_000)):
        redis.call("DEL", DUE, QUEUE)
        one = Router()
        begun = micros(redis)
        got = lease(one, redis, rate, 10**7)
        passed = (micros(redis) - begun) * rate / 1e6
        assert worth <= got <= worth + passed + 1, rate
        again = lease(one, redis, rate, 10**7)
        assert again <= (micros(redis) - begun) * rate / 1e6 + 1


@pytest.mark.parametrize(
    "value", ["x", "", "1e400", "nan", "inf", "-1", "0x10", "9" * 30, "1 2", "1\0", " 5", "1" * 100_000]
)
def test_a_limit_that_another_wrote_counts_as_none(redis, value):
    """Above all it is written anew: NaN is neither more nor less than any time."""
    redis.call("SET", DUE, value)
    one = Router()
    assert lease(one, redis, 10, 5) == 5
    assert abs(int(redis.call("GET", DUE)) - micros(redis)) < 60 * 10**6
    assert lease(one, redis, 10, 5) == 0


JUNK_QUEUES = [
    "x", "nan", ":", "0:0", f"{hexed(5)}:nan", f"{hexed(5)}:-1", f"{hexed(5)}:{'9' * 17}",
    f"{hexed(5)}:{'9' * 400}", f"{'a' * 17}:%(now)s", f"{'a' * 15}:%(now)s", f"{'g' * 16}:%(now)s",
    "%(many)s", "0" * 1_000_000,
]  # fmt: skip


@pytest.mark.parametrize("value", JUNK_QUEUES)
def test_a_queue_that_another_wrote_counts_as_none(redis, value):
    many = " ".join(f"{hexed(number)}:{micros(redis)}" for number in range(1000))
    redis.call("SET", QUEUE, value % {"now": micros(redis), "many": many})
    one = Router()
    assert lease(one, redis, 10, 9) == 5
    assert redis.call("GET", QUEUE).decode().startswith(f"{hexed(1)}:{micros(redis) // 10**9}")
    assert redis.call("GET", QUEUE).count(b":") == 1


def test_at_most_256_routers_wait(redis):
    waiting = " ".join(f"{hexed(number + 2)}:{micros(redis)}" for number in range(280))
    redis.call("SET", QUEUE, waiting)
    assert lease(Router(), redis, 1_000_000, 10**6) == 500_000 // 256
    assert redis.call("GET", QUEUE).count(b":") == 256
    assert len(redis.call("GET", QUEUE)) < 10_000


def pass_time(server, passed):
    """By setting back what the bucket has kept."""
    kept = server.call("GET", DUE)
    queue = [entry.decode().split(":") for entry in (server.call("GET", QUEUE) or b"").split()]
    queue = [(name, int(at) - passed) for name, at in queue]
    server.call("SET", QUEUE, " ".join(f"{name}:{at}" for name, at in queue))
    if kept is not None:
        kept = int(kept) - passed
        server.call("SET", DUE, str(kept))
    return kept, queue


@given(
    st.sampled_from([1, 2, 3, 10, 1000, 1_000_000]),
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(-600, 1200), st.integers(0, 18).map(lambda n: n * 50_000)),
        max_size=12,
    ),
)
@settings(max_examples=80, deadline=None)
def test_leases_are_those_of_the_twin(server, rate, steps):
    server.call("DEL", DUE, QUEUE)
    for number, percent, passed in steps:
        tokens = rate * percent // 1000
        kept, queue = pass_time(server, passed)
        early, late = Bucket(kept), Bucket(kept)
        early.queue, late.queue = list(queue), list(queue)
        least = early.lease(micros(server), rate, tokens, hexed(number))
        got = lease(Router(number), server, rate, tokens)
        assert least <= got <= late.lease(micros(server), rate, tokens, hexed(number))
        due = int(server.call("GET", DUE))
        if got == least:
            assert early.due is not None
            assert early.due - 1 <= due
            names = [entry.split(b":")[0].decode() for entry in server.call("GET", QUEUE).split()]
            assert names == [name for name, _ in early.queue]
        if got < 0:  # what was given back may be leased again, up to what the bucket holds
            assert due >= micros(server) - max(500_000, 1_250_000 // rate) - 10**6


def test_of_two_routers_the_second_in_each_turn_gets_as_much_as_the_first(redis):
    """Turns that stay in step: one always comes just before the other, when the bucket has filled up."""
    one, other = Router(1), Router(2)
    got = [0, 0]
    for turn in range(40):
        pass_time(redis, 100_000)
        for at, router in enumerate((one, other)):
            leased = lease(router, redis, 1000, 160)
            got[at] += leased if turn >= 10 else 0
    assert abs(got[0] / sum(got) - 0.5) < 0.06, got
    assert sum(got) >= 30 * 100 * 0.97


def test_a_token_of_a_slow_limit_goes_to_the_router_that_waited_for_longest(redis):
    routers = [Router(number) for number in range(1, 5)]
    got = [0] * 4
    for _ in range(40):
        pass_time(redis, 100_000)
        for at, router in enumerate(routers):
            got[at] += lease(router, redis, 2, 3)
    assert min(got) >= 2, got
    assert max(got) <= min(got) + 1


def test_a_router_that_got_all_it_asked_for_waits_no_longer(redis):
    one, other = Router(1), Router(2)
    lease(one, redis, 1000, 500)
    assert lease(one, redis, 1000, 500) >= 0
    assert redis.call("GET", QUEUE).startswith(hexed(1).encode())
    pass_time(redis, 300_000)
    assert lease(other, redis, 1000, 20) == 20
    assert lease(one, redis, 1000, 10) == 10
    assert redis.call("GET", QUEUE) == b""


@pytest.mark.parametrize("key", [DUE, QUEUE])
def test_a_limit_of_another_type_counts_as_none(redis, key):
    """Row 6: no lease was ever given again."""
    redis.call("HSET", key, "a", "b")
    one = Router()
    assert lease(one, redis, 10, 5) == 5
    assert lease(one, redis, 10, 5) == 0
    assert int(redis.call("GET", DUE)) <= micros(redis) + 500_000
    redis.call("GET", QUEUE)


def test_a_clock_that_was_set_back_does_not_stop_the_limit(redis):
    redis.call("SET", DUE, str(micros(redis) + 3600 * 10**6))
    assert lease(Router(), redis, 1000, 100) == 0  # nothing is saved up
    assert int(redis.call("GET", DUE)) <= micros(redis) + 500_000


def test_after_a_clock_was_set_back_a_stream_begins_anew_and_is_trimmed_again(redis):
    one, other = Router(1), Router(2)
    write, read = one.with_redis(redis), other.with_redis(redis)
    write()
    read()
    stream = f"vr:{{f}}:x:{hexed(1)}"
    ahead = int(time.time() * 1000) + 3_600_000
    redis.call("XADD", stream, f"{ahead}-0", "f", "of the time before")
    write(("frames", [b"1"], NOW))
    assert redis.call("XRANGE", stream, "-", "+")[-1][0] == b"%d-1" % ahead  # ids count on
    write(("frames", [b"2"], NOW))
    ((name, _),) = redis.call("XRANGE", stream, "-", "+")
    assert int(name.split(b"-")[0]) < ahead - 3_000_000
    write(("frames", [b"3"], NOW))
    assert redis.call("XLEN", stream) == 2
    read(("reads", NOW))
    assert read(("reads", NOW))["frames"] == [b"2", b"3"]
    assert read(("reads", NOW))["frames"] == []


LARGEST = f"{2**64 - 1}-{2**64 - 1}"


def poisons(redis, stream, members):
    """What someone who may write to that Redis can do once."""
    return {
        "the largest id": lambda: redis.call("XADD", stream, LARGEST, "f", "x"),
        "an id beyond all times": lambda: redis.call("XADD", stream, f"{2**64 - 2}-0", "f", "x"),
        "an id of the year 2100": lambda: redis.call("XADD", stream, f"{4 * 10**12}-0", "f", "x"),
        "a stream of another type": lambda: (redis.call("DEL", stream), redis.call("SET", stream, "x")),
        "members of another type": lambda: (redis.call("DEL", members), redis.call("SET", members, "x")),
        "a lost stream": lambda: redis.call("DEL", stream),
        "all lost": lambda: redis.call("FLUSHALL"),
    }


@pytest.mark.parametrize("poison", poisons(None, "", ""))
def test_whatever_is_written_once_a_router_is_heard_again(redis, poison):
    """Row 6: one entry with the largest id isolated a router until its restart."""
    one, other = Router(1), Router(2)
    write, read = one.with_redis(redis), other.with_redis(redis)
    write()
    read()
    write(("frames", [b"1"], NOW))
    read(("reads", NOW))
    assert read(("reads", NOW))["frames"] == [b"1"]
    poisons(redis, f"vr:{{f}}:x:{hexed(1)}", "vr:{f}:members")[poison]()
    for _ in range(3):
        write(("frames", [b"lost"], NOW))
        read(("reads", NOW))
    write(("frames", [b"2"], NOW))
    heard = read(("reads", NOW))
    assert (heard["error"], heard["unread"], heard["frames"][-1:]) == ("", "", [b"2"])
    write(("frames", [b"3"], NOW))
    assert read(("reads", NOW))["frames"] == [b"3"]


def test_trouble_has_the_words_of_redis(redis):
    one = Router()
    ask = one.with_redis(redis)
    ask()
    redis.call("XADD", f"vr:{{f}}:x:{hexed(1)}", LARGEST, "f", "x")
    error = ask(("frames", [b"1"], NOW))["error"]
    assert error.startswith("replied ERR: The ")
    assert error.endswith(" (to XADD)")
    assert ask(("frames", [b"1"], NOW))["error"] == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ERR The ID specified in XADD is too small", ": The ID specified in XADD is too small"),
        ("ERR unknown command 'XADD', with args beginning with: 'SECRET'", ": unknown command"),
        ('ERR unknown command "SECRET"', ": unknown command"),
        ("ERR", ""),
        ("WRONGTYPE Operation against a key", ": another program uses the router's keys"),
        ("ERR " + "x" * 1000, ": " + "x" * 120),
    ],
)
def test_the_words_of_an_error_end_before_what_redis_repeats(text, words):
    one = Router()
    one.learn([])
    replies = AT + f"-{text}\r\n".encode() + OK * 3
    heard = one.replies(replies, ("frames", ["x"], NOW))
    assert heard["error"] == f"replied {text.split(' ')[0]}{words} (to XADD)"
