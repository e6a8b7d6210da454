"""cpp/policy/merged_stats.h: two reports as one."""

from vllm_router import _core_testing as testing


def merged(first, second, is_its=()):
    return testing.merged_stats(first, second, list(is_its))


def test_counters_and_gauges_are_sums():
    first = [("counter", "cache", "hits", [], [3]), ("gauge", "cache", "size", [], [10])]
    second = [("counter", "cache", "hits", [], [4]), ("gauge", "cache", "size", [], [5])]
    assert merged(first, second) == [
        ("counter", "cache", "hits", [], [7]),
        ("gauge", "cache", "size", [], [15]),
    ]


def test_named_counters_and_histograms_are_sums_name_by_name():
    first = [("named", "g", "by", ["a", "b"], [1, 2]), ("histogram", "g", "h", [], [1, 2, 100])]
    second = [("named", "g", "by", ["a", "b"], [5, 0]), ("histogram", "g", "h", [], [1, 0, 11])]
    assert merged(first, second) == [
        ("named", "g", "by", ["a", "b"], [6, 2]),
        ("histogram", "g", "h", [], [2, 2, 111]),
    ]


def test_the_second_report_says_how_its_own_workers_are():
    #   position   0   1   2     worker 2 is of the second report
    first = [("worker", "g", "size", [], [10, 20, 99])]
    second = [("worker", "g", "size", [], [98, 97, 7])]
    assert merged(first, second, [0, 0, 1]) == [("worker", "g", "size", [], [10, 20, 7])]


def test_what_only_one_has_stays_as_it_is_and_each_group_in_one_piece():
    first = [("counter", "one", "a", [], [1]), ("counter", "two", "b", [], [2])]
    second = [("counter", "one", "c", [], [3]), ("counter", "three", "d", [], [4])]
    assert [figure[1:3] for figure in merged(first, second)] == [
        ("one", "a"),
        ("one", "c"),
        ("two", "b"),
        ("three", "d"),
    ]


def test_figures_of_the_same_key_in_two_groups_are_two():
    first = [("counter", "one", "a", [], [1])]
    second = [("counter", "two", "a", [], [2])]
    assert merged(first, second) == [*first, *second]
