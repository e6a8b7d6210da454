"""cpp/http/via.h: hops are counted, and our own is found, however they are written."""

import re

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

OWN = "vllm-router-0f3ac2d4415be697"


@for_each_row(
    ("values", "own", "routers"),
    [
        ([], False, 0),
        ([""], False, 0),
        (["1.1 nginx, HTTP/2 cache:80 (squid)"], False, 0),
        ([f"1.1 {OWN}"], True, 1),
        ([f"1.0\t {OWN.upper()} (x)"], True, 1),
        ([f"1.1 nginx,,1.1 {OWN}(x) , 1.1 other"], True, 1),
        ([f"1.1 {OWN}0", f"1.1 {OWN[:-1]}", "1.1 vllm-router-"], False, 3),
        (["1.1 a", "1.1 vllm-router-1,1.1 vllm-router-2", f"1.1 {OWN}"], True, 3),
        (["1.1 vllm-router"], False, 0),
        # names in comments, which anybody may write, are no hops
        ([rf"1.1 a (1.1 {OWN}, 1.1 {OWN} (, 1.1 {OWN}) \), 1.1 {OWN}), 1.1 vllm-router-1"], False, 1),
        ([f"1.1 a (never closed, 1.1 {OWN}"], False, 0),
        ([f"1.1 a), 1.1 {OWN}"], True, 1),
        ([f"1.1{OWN}", OWN, "1.1 ", ",", "\\"], False, 0),
    ],
)
def test_hops_are_read(values, own, routers):
    assert testing.read_via(values, OWN) == (own, routers)


def test_a_name_says_what_it_is_and_is_unlike_others():
    assert re.fullmatch("vllm-router-[0-9a-f]{16}", testing.hop_name(1))
    assert testing.hop_name(1) != testing.hop_name(2)
    assert testing.read_via([f"1.1 {testing.hop_name(7)}"], testing.hop_name(7)) == (True, 1)
