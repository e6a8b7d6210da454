"""cpp/events/identity_map.h: any hash is legal, places of entries move and their contents do not."""

from vllm_router import _core_testing as testing

RUN = 1 << 32 | 1 << 16  # run 1, generation 1


def test_zero_and_every_other_hash_is_legal():
    table = testing.IdentityMap()
    for at, name in enumerate([0, 1, 2**64 - 1]):
        assert table.find(name) is None
        assert table.add(name, [RUN + at])
    assert [table.refs(name) for name in (0, 1, 2**64 - 1)] == [[RUN], [RUN + 1], [RUN + 2]]


def test_it_equals_a_dict_over_a_random_history(rng):
    table, model = testing.IdentityMap(), {}
    for _ in range(20_000):
        name = rng.randrange(600) if rng.random() < 0.5 else rng.randrange(300) << 40
        if name not in model:
            model[name] = [RUN + rng.randrange(60_000), 0, False, False]
            assert table.add(name, [model[name][0]])
        elif rng.random() < 0.4:
            table.erase(name)
            del model[name]
            assert table.find(name) is None
            continue
        entry, tier = model[name], rng.randrange(3)
        if rng.random() < 0.5:
            table.add_copy(name)
            entry[1] += 1
        elif entry[1 + tier]:
            table.take(name, tier)
            entry[1 + tier] = entry[1] - 1 if tier == 0 else False
        else:
            table.put(name, tier)
            entry[1 + tier] = 1 if tier == 0 else True
        assert len(table) == len(model)
        assert table.on_gpu == sum(copies > 0 for _, copies, *_ in model.values())
    for name, (ref, *tiers) in model.items():
        assert (table.refs(name), table.find(name)) == ([ref], tuple(tiers))


def test_the_load_stays_between_a_half_and_four_fifths():
    table = testing.IdentityMap()
    for name in range(10_000):
        table.add(name, [RUN])
        assert len(table) <= 0.8 * table.capacity
        assert table.capacity == 64 or len(table) >= 0.53 * table.capacity
    assert table.bytes < 30 * 10_000
    table.clear()
    assert (len(table), table.on_gpu, table.capacity, table.find(1)) == (0, 0, 0, None)


def test_its_maximum_is_kept():
    table = testing.IdentityMap(max_entries=2)
    assert [table.add(name, [RUN]) for name in range(3)] == [True, True, False]


def test_places_that_do_not_follow_each_other():
    table = testing.IdentityMap()
    table.add(1, [RUN, RUN + 1])
    table.add(2, [RUN, RUN + 5])
    assert table.refs(1, 2) == [RUN, RUN + 1]
    assert table.refs(2, 2) == [RUN, RUN + 5]
    assert table.has_refs(2, [RUN, RUN + 5])
    assert not table.has_refs(2, [RUN, RUN + 1])
    table.set_refs(2, [RUN + 7, RUN + 8])
    assert table.refs(2, 2) == [RUN + 7, RUN + 8]
    table.erase(2)
    assert table.find(2) is None


def test_many_copies():
    table = testing.IdentityMap()
    table.add(1, [RUN])
    for _ in range(9):
        table.add_copy(1)
    assert table.find(1) == (9, False, False)
    for left in range(8, -1, -1):
        table.take(1, 0)
        assert table.find(1) == (left, False, False)
    table.add_copy(1)
    table.put(1, 2)
    table.take_all(1)
    assert (table.find(1), table.on_gpu) == ((0, False, False), 0)
