"""vllm_router.testing.FakeMooncakeMaster: it responds as a Mooncake master does."""

import json
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from vllm_router.testing import FakeMooncakeMaster


@pytest.fixture
def master():
    with FakeMooncakeMaster(["K1"]) as made:
        yield made


def ask(master, keys):
    with urlopen(f"{master.url}/batch_query_keys?keys={keys}") as response:
        return json.load(response)


def there(master, keys):
    data = ask(master, keys)["data"]
    return [bool(data[key].get("values")) for key in keys.split(",")]


def test_objects_come_and_go(master):
    assert there(master, "K1,K2") == [True, False]
    master.add(["K2"])
    master.remove(["K1"])
    assert there(master, "K1,K2") == [False, True]
    assert master.queries == [["K1", "K2"], ["K1", "K2"]]


def test_a_replica_that_is_being_written_is_none(master):
    master.add(["K2"], being_written=True)
    assert ask(master, "K2")["data"]["K2"]["ok"]
    assert there(master, "K2") == [False]


def test_keys_are_those_of_hicache():
    (first, second) = FakeMooncakeMaster.keys_of(range(1, 9), 4, prefix="m_")
    digest = "cf97adeedb59e05bfd73a2b4c2a8885708c4f4f70c84c64b27120e72ab733b72"
    assert first == [f"m_{digest}_0_k", f"m_{digest}_0_v"]
    assert second[0].startswith("m_4ebfa8a1")
    assert len(FakeMooncakeMaster.keys_of(range(8), 4, eagle=True)) == 1


def test_faults_begin_when_they_should(master):
    master.set_faults(status=503, after=1)
    ask(master, "K1")
    with pytest.raises(HTTPError, match="503"):
        ask(master, "K1")
    master.set_faults(body=b"{}")
    assert ask(master, "K1") == {}
    master.set_faults()
    assert there(master, "K1") == [True]


def test_other_requests_are_refused(master):
    for path, status in (("/batch_query_keys", "400"), ("/x", "404")):
        with pytest.raises(HTTPError, match=status):
            urlopen(master.url + path)


def test_it_can_be_stopped_twice():
    master = FakeMooncakeMaster()
    assert repr(master) == f"<FakeMooncakeMaster {master.url}>"
    master.stop()
    master.stop()
