"""cpp/proxy/response_cache/response_cache_service.h: shared generations, clearing and counting."""

import pytest

from tests.fakes.wire import eventually, wait_until_logged
from vllm_router import _core_testing as testing

GENERATIONS = "cr:resp:~gen"


def key(number):
    return "cr:resp:" + testing.RedisResponses.hex_key(number)


def counters(redis):
    words = redis.call("HGETALL", GENERATIONS)
    return {words[i].decode(): int(words[i + 1]) for i in range(0, len(words), 2)}


def test_an_invalidation_reaches_the_other_routers(open_responses, redis):
    routers = [open_responses(redis.url) for _ in range(3)]
    generation = routers[0].bump("a")
    assert generation > 0
    eventually(lambda: all(router.of("a") == generation for router in routers))
    assert [router.of("b") for router in routers] == [0, 0, 0]
    assert routers[1].bump("*") > 0
    eventually(lambda: len({router.of("b") for router in routers}) == 1 and routers[2].of("b") > 0)
    assert sum(counters(redis).values()) == routers[0].of("a") == routers[2].of("a") > generation


def test_generations_that_redis_has_hold_before_the_first_look_up(open_responses, redis):
    redis.call("HSET", GENERATIONS, "*", "7", "a", "2")
    responses = open_responses(redis.url)
    assert (responses.of("a"), responses.of("b")) == (9, 7)
    assert responses.stats()["recovered"] == 1


def test_nothing_is_looked_up_until_the_generations_are_known(open_responses, fake):
    fake.replies["HGETALL"] = None
    responses = open_responses(fake.url, waits=False)
    fake.wait_for("HGETALL")
    assert responses.find(1).get() == ("down", b"")
    assert responses.stats()["recovered"] == 0
    connection = fake.connection_of("HGETALL")
    fake.replies["HGETALL"] = b"*0\r\n"
    connection.sendall(b"*2\r\n$1\r\n*\r\n$1\r\n5\r\n")
    eventually(lambda: responses.stats()["usable"])
    assert responses.of("a") == 5


def test_an_outage_ends_with_the_invalidations_made_meanwhile(open_responses, redis):
    routers = [open_responses(redis.url) for _ in range(2)]
    redis.call("HSET", GENERATIONS, "*", "5")
    eventually(lambda: [router.of("a") for router in routers] == [5, 5])
    redis.kill()
    eventually(lambda: all(router.stats()["fallback"] for router in routers))
    first, second = routers[0].bump("*"), routers[1].bump("a")
    assert min(first, second) > 5
    assert redis.start()  # it has lost everything
    eventually(lambda: all(router.stats()["usable"] for router in routers))
    eventually(lambda: routers[0].of("a") == routers[1].of("a") == sum(counters(redis).values()))
    assert routers[0].of("a") >= first + second - 5
    assert [router.stats()["recovered"] for router in routers] == [2, 2]


def test_a_step_is_in_redis_before_it_is_used_again(open_responses, fake):
    """So a response of before is not found by the key of a router that has not heard of the step."""
    responses = open_responses(fake.url)
    fake.replies["HINCRBY"] = b":100000000\r\n"
    fake.replies["HGETALL"] = b"*2\r\n$1\r\n*\r\n$9\r\n100000000\r\n"
    fake.replies["PING"] = b"-LOADING x\r\n"
    fake.replies["GET"] = b"-LOADING x\r\n"
    responses.find(1).get()
    eventually(lambda: responses.stats()["fallback"])
    step = responses.bump("*")
    fake.replies["PING"] = b"+PONG\r\n"
    fake.replies["GET"] = b"$-1\r\n"
    eventually(lambda: responses.stats()["usable"])
    assert fake.wait_for("HINCRBY") == [["HINCRBY", GENERATIONS, "*", str(step)]]
    assert responses.of("a") == 100_000_000
    names = [words[0] for words in fake.commands]
    assert names.index("HINCRBY") < len(names) - 1 - names[::-1].index("HGETALL")


def test_a_flush_does_not_bring_old_generations_back(open_responses, redis):
    responses = open_responses(redis.url)
    responses.bump("a")
    responses.bump("*")
    generation = responses.of("a")
    eventually(lambda: sum(counters(redis).values()) == generation)
    redis.call("FLUSHALL")
    eventually(lambda: sum(counters(redis).values()) == generation)
    assert responses.of("a") == generation
    redis.call("HSET", GENERATIONS, "*", "0")  # a failover that lost a step
    eventually(lambda: responses.of("a") > generation)
    eventually(lambda: sum(counters(redis).values()) == responses.of("a"))


def test_a_field_that_is_no_number_is_replaced(open_responses, redis):
    responses = open_responses(redis.url)
    responses.bump("a")
    generation = responses.of("a")
    redis.call("HSET", GENERATIONS, "a", "many")
    eventually(lambda: redis.call("HGET", GENERATIONS, "a") != b"many")
    eventually(lambda: responses.of("a") == counters(redis)["a"] > generation)


def test_a_full_redis_gets_the_invalidation_later(open_responses, redis):
    responses = open_responses(redis.url)
    redis.call("CONFIG", "SET", "maxmemory", "1")
    generation = responses.bump("*")
    eventually(lambda: responses.stats()["errors"]["other"] >= 2)
    assert (responses.of("a"), responses.stats()["usable"]) == (generation, True)
    redis.call("CONFIG", "SET", "maxmemory", "0")
    eventually(lambda: redis.call("HLEN", GENERATIONS) == 1)
    assert counters(redis) == {"*": generation}


def test_without_generations_redis_is_not_used(open_responses, redis, capfd):
    responses = open_responses(redis.url)
    redis.call("DEL", GENERATIONS)
    redis.call("SET", GENERATIONS, "theirs")
    eventually(lambda: not responses.stats()["usable"])
    assert responses.find(1).get() == ("down", b"")
    assert redis.call("GET", GENERATIONS) == b"theirs"
    wait_until_logged(capfd, "(to HGETALL cr:resp:~gen); this router's memory is used")
    redis.call("DEL", GENERATIONS)
    eventually(lambda: responses.stats()["usable"])
    assert responses.stats()["recovered"] == 2


# ---- clearing


def test_a_clear_deletes_what_is_named_as_responses_are(open_responses, redis):
    others = ["cr:resp:", "cr:resp:~probe", "cr:resp:x", "cr:kvidx:1", key(1)[:-1] + "G", key(1) + "0"]
    for other in others:
        redis.call("SET", other, "theirs")
    for number in range(3_000):
        redis.call("SET", key(number), "x")
    responses = open_responses(redis.url)
    assert responses.clear().get() == (3_000, "")
    assert all(redis.call("EXISTS", other) == 1 for other in others)
    assert redis.call("DBSIZE") == len(others) + 1
    assert counters(redis) == {"*": responses.of("a")}
    assert responses.entries() == 0
    assert responses.clear().get() == (0, "")


def test_a_clear_without_redis_holds_here_and_is_told_later(open_responses, redis):
    responses = open_responses(redis.url)
    redis.kill()
    eventually(lambda: responses.stats()["fallback"])
    before = responses.of("a")
    cleared, why = responses.clear().get()
    assert cleared == -1
    assert "Redis is down" in why
    generation = responses.of("a")
    assert generation > before
    assert redis.start()
    eventually(lambda: responses.stats()["usable"])
    assert counters(redis) == {"*": generation}


@pytest.mark.parametrize("command", ["SCAN", "UNLINK"])
def test_a_user_who_may_not_scan_clears_by_the_generation(open_responses, fake, capfd, command):
    fake.replies["SCAN"] = b"*2\r\n$1\r\n0\r\n*1\r\n$72\r\n%s\r\n" % key(1).encode()
    fake.replies["HINCRBY"] = b":1\r\n"
    fake.replies[command] = b"-NOPERM this user has no permissions to run the command\r\n"
    responses = open_responses(fake.url)
    assert responses.clear().get() == (0, "")
    assert responses.of("a") > 0
    assert (responses.stats()["outages"], responses.stats()["usable"]) == (0, True)
    wait_until_logged(capfd, f"(to {command} cr:resp:*)")


def test_a_clear_ends_when_it_is_cancelled(open_responses, fake):
    fake.replies["SCAN"] = b"*2\r\n$1\r\n7\r\n*0\r\n"  # it has no end
    fake.replies["HINCRBY"] = b":1\r\n"
    responses = open_responses(fake.url)
    call = responses.clear()
    fake.wait_for("SCAN", 5)
    assert responses.clear().get() == (0, "")  # another one, which leaves deleting to the first
    responses.cancel(call)
    assert call.get() == (0, "")
    assert fake.wait_for("SCAN")[0] == ["SCAN", "0", "MATCH", "cr:resp:*", "COUNT", "512"]


def test_a_clear_ends_with_the_router(open_responses, fake):
    fake.replies["SCAN"] = b"*2\r\n$1\r\n7\r\n*0\r\n"
    fake.replies["HINCRBY"] = b":1\r\n"
    responses = open_responses(fake.url)
    call = responses.clear()
    fake.wait_for("SCAN", 3)
    assert responses.stop()
    assert call.get()[0] in (0, -1)  # Redis may not have had the step


# ---- counting


def test_responses_are_counted(open_responses, redis):
    redis.call("SET", "cr:resp:other", "theirs")
    for number in range(700):
        redis.call("SET", key(number), "x")
    responses = open_responses(redis.url)
    eventually(lambda: responses.entries() == 700)


def test_what_cannot_be_counted_has_no_count(open_responses, fake, capfd):
    fake.replies["SCAN"] = b"-ERR unknown command 'SCAN'\r\n"
    responses = open_responses(fake.url)
    wait_until_logged(capfd, "replied ERR (to SCAN cr:resp:*); its responses are not counted")
    assert responses.entries() is None
