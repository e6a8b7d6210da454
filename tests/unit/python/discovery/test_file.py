"""vllm_router.discovery.file: what a file of workers may say, and when it is read."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import for_each_row
from vllm_router._core import worker_key
from vllm_router.discovery import FileSource, Listing, SourceError, WorkerSpec
from vllm_router.discovery.file import workers_of_text
from vllm_router.settings.yaml import MAX_YAML_BYTES

A, B = WorkerSpec("http://a:1"), WorkerSpec("http://b:1")


# What it says


@for_each_row(
    ("text", "workers"),
    [
        ("workers: []", []),
        ("workers: [http://a:1, http://b:1]", [A, B]),
        ("workers:\n- http://a:1\n- url: http://b:1\n", [A, B]),
        ("\ufeffworkers: [http://a:1]".removeprefix("\ufeff"), [A]),
        ('{"workers": ["http://a:1", {"url": "http://b:1"}]}', [A, B]),
        ('{\t"workers":\t["http://a:1"]}', [A]),  # YAML knows no tabs here
        ('{"workers": [{"url": "http://a:1", "weight": 2e0}]}', [WorkerSpec("http://a:1", weight=2)]),
        ("{workers: [http://a:1]}", [A]),  # YAML in braces
        (
            "workers:\n"
            "- url: https://a:1/prefix@2\n"
            "  weight: 0.5\n"
            "  ready: false\n"
            "  leaving: true\n"
            "  drain-secs: 30\n"
            "  incarnation: uid-1\n"
            "  data_parallel_size: 4\n"
            "  models: [m, org/n]\n"
            "  labels: {zone: a}\n",
            [
                WorkerSpec(
                    "https://a:1/prefix@2",
                    weight=0.5,
                    ready=False,
                    leaving=True,
                    drain_secs=30,
                    incarnation="uid-1",
                    data_parallel_size=4,
                    models=("m", "org/n"),
                    labels={"zone": "a"},
                )
            ],
        ),
        ("workers: [{url: http://a:1, weight: null, labels: }]", [A]),
        ("workers: [ray://a, NAME://b]", [WorkerSpec("ray://a"), WorkerSpec("NAME://b")]),
        ("workers: [http://a:1@0, http://a:1@1]", [WorkerSpec("http://a:1@0"), WorkerSpec("http://a:1@1")]),
        ("workers: [http://a:1/x, http://a:1/X]", [WorkerSpec("http://a:1/x"), WorkerSpec("http://a:1/X")]),
        (
            "workers:\n- &a {url: http://a:1, weight: 2}\n- {<<: *a, url: http://b:1}\n",
            [WorkerSpec("http://a:1", weight=2), WorkerSpec("http://b:1", weight=2)],
        ),
        ("endpoints: [{address: 10.0.0.1, port: 8000}]", [WorkerSpec("http://10.0.0.1:8000")]),
        (
            "endpoints:\n- address: fd00::1\n  port: '8000'\n  labels: {zone: a}\n- {address: g, port: 1}",
            [WorkerSpec("http://[fd00::1]:8000", labels={"zone": "a"}), WorkerSpec("http://g:1")],
        ),
        (
            "endpoints: [{name: vllm-0, namespace: prod, address: a, port: 1, labels: {name: mine}}]",
            [WorkerSpec("http://a:1", labels={"name": "mine", "namespace": "prod"})],
        ),
    ],
)
def test_a_file_lists_workers(text: str, workers: list[WorkerSpec]) -> None:
    assert workers_of_text(text, "w") == workers


@for_each_row(
    ("text", "sentence"),
    [
        ("", "w is empty; write workers: [http://gpu-0:8000, http://gpu-1:8000] in it, or workers: [] for"),
        ("# none\n", "w is empty; "),
        ("- http://a:1\n", "w, line 1: workers stand under a name, not in a bare list; write workers: [http"),
        ('\n["http://a:1"]', "w, line 2: workers stand under a name"),
        ("http://a:1", "w, line 1: this is a text of 10 characters, not a list of workers; write workers: ["),
        ("{}", "w, line 1: the file has neither workers nor endpoints; write workers: ["),
        ("workers:\n", "w, line 1: the file has neither workers nor endpoints"),
        ("workers: []\nendpoints: []", "w, line 1: the file has workers and endpoints; keep one of them"),
        ("\nworker: [http://a:1]", "w, line 2: worker is not a known name; did you mean workers?"),
        ("port: 1", "w, line 1: port is not a known name; it has workers, endpoints"),
        (
            "workers: http://a:1",
            "w, line 1: workers is a text of 10 characters; it must be a list: write wor",
        ),
        ("workers: {http://a:1: 2}", "w, line 1: workers is a mapping of 1 names; it must be a list"),
        ("workers: !!set {a}", "workers is a set of 1; it must be a list"),
        ("workers:\n- 7\n", "w, line 2: workers[0] is a number; it must be a URL such as http://gpu-0:8000"),
        ("workers:\n- [http://a:1]\n", "w, line 2: workers[0] is a list of 1; "),
        ("workers:\n- weight: 2\n", "w, line 2: workers[0] has no url; write url: http://gpu-0:8000"),
        ("workers:\n- weight: 2\n  url: 8000\n", "w, line 3: workers[0].url is a number; it must be a URL"),
        ("workers:\n- gpu-0:8000\n", "w, line 2: workers[0] is gpu-0:8000; write URLs like http://host:8000"),
        ("workers:\n- ''\n", "w, line 2: workers[0] is an empty text; write URLs like http://host:8000"),
        ("workers:\n- grpc://a:1\n", "w, line 2: workers[0] is grpc://a:1; workers are reached by HTTP: use"),
        (
            "workers:\n- url: http://a:1\n  wieght: 2\n",
            "w, line 3: workers[0].wieght is not a known name; did you mean weight?",
        ),
        (
            "workers:\n- url: http://a:1\n  colour: red\n",
            "w, line 3: workers[0].colour is not a known name; it has url, weight, ready, leaving",
        ),
        (
            "workers: [{url: http://a:1, drain_secs: 1, drain-secs: 2}]",
            "w, line 1: workers[0].drain_secs is given in two spellings; keep one of them",
        ),
        (
            "workers:\n- url: http://a:1\n  role: prefill\n",
            "w, line 3: workers[0].role is not implemented in vllm-router ",
        ),
        (
            "workers:\n- url: http://a:1\n  weight: 0\n",
            "w, line 3: workers[0].weight is 0; it must be a number between 0.01 and 100",
        ),
        ('{"workers": [\n{"url": "http://a:1",\n"weight": 1e999}]}', "w, line 3: workers[0].weight is inf; "),
        (
            "workers:\n- url: http://a:1\n  labels:\n    zone: 1\n",
            "w, line 4: workers[0].labels has zone=1; it must map str to str",
        ),
        (
            "workers:\n- http://a:1\n- http://b:1\n- url: http://a:1/\n",
            "w, line 4: http://a:1/ is in line 2 already; keep one of them",
        ),
        ("workers:\n- http://a:1\n- HTTP://A:1\n", "w, line 3: HTTP://A:1 is in line 2 already"),
        (
            "workers:\n- http://a\n- http://A:80/\n",
            "w, line 3: http://A:80/ is in line 2 already; keep one of",
        ),
        (
            "workers:\n- https://a:443\n- https://a\n",
            "w, line 3: https://a is in line 2 already; keep one of",
        ),
        (
            "workers:\n- {url: http://a:1, data_parallel_size: 2}\n- http://a:1/@1\n",
            "w, line 3: http://a:1/@1 is in line 2 already; keep one of them",
        ),
        (
            "workers:\n- http://a:1\n- http://127.0.0\n",
            "w, line 3: workers[1] is http://127.0.0, which has the host 127.0.0, which is not an IPv4",
        ),
        (
            "workers:\n- url: http://ü\n",
            "w, line 2: workers[0].url is http:..., which contains a character outsi",
        ),
        (
            "workers:\n- name://\n",
            "w, line 2: workers[0] is name://, which has nothing after the scheme; write na",
        ),
        (
            "endpoints:\n- port: 1\n  address: 10.0.0\n",
            "w, line 3: endpoints[0] is http://10.0.0:1, which has the host 10.0.0, which is not an IPv4",
        ),
        (
            "workers:\n" + "".join(f"- http://a:{port}\n" for port in range(1, 4098)),
            "w, line 4098: http://a:4097 is beyond the 4096 workers, each rank counted, that a fleet has",
        ),
        (
            "workers:\n- {url: http://a:1, data_parallel_size: 4096}\n- http://b:1\n",
            "w, line 3: http://b:1 is beyond the 4096 workers",
        ),
        (
            "workers: []\n\nworkers: []\n",
            "w, line 3: workers is in line 1 already; keep one of them",
        ),
        (
            '{"workers": [{"url": "http://a:1",\n"url": "http://b:1"}]}',
            "w, line 2: url is in line 1 already",
        ),
        ("workers: [\n", "w is not YAML: line 2, column 1: "),
        ("workers:\n\t- http://a:1\n", "w is not YAML: line 2, column 1: "),
        ("workers: *a\n", "w is not YAML: line 1, column 10: "),
        ("workers: !!python/object:os.system [a]\n", "w is not YAML: line 1, column 10: "),
        ("&a [*a]", "an alias (*) refers to a value that contains it"),
        ("workers: " + "[" * 40, "nested deeper than 32 levels"),
        ('{"workers": ' + "[" * 100_000, "nested deeper than 32 levels"),
        (
            "#" * (MAX_YAML_BYTES + 1),
            "which is the limit for a file of workers; list fewer workers in it, or name another one by",
        ),
        (
            "endpoints: 7",
            "w, line 1: endpoints is a number; it must be a list: write endpoints: [{address: 10",
        ),
        (
            "endpoints: [a]",
            "w, line 1: endpoints[0] is a text of 1 characters; write {address: 10.0.0.1, por",
        ),
        ("endpoints: [{port: 1}]", "w, line 1: endpoints[0] has no address; write {address: 10.0.0.1, port:"),
        (
            "endpoints: [{address: a}]",
            "w, line 1: endpoints[0] has no port; write {address: 10.0.0.1, port: ",
        ),
        (
            "endpoints: [{address: a b, port: 1}]",
            "endpoints[0].address is a text of 3 characters; it must be",
        ),
        (
            "endpoints:\n- address: a\n  port: 0\n",
            "w, line 3: endpoints[0].port is 0; it must be a number bet",
        ),
        ("endpoints: [{address: a, port: '65536'}]", "endpoints[0].port is 65536; it must be a number betwe"),
        (
            "endpoints: [{address: a, port: 1, weight: 2}]",
            "endpoints[0].weight is not a known name; it has a",
        ),
        (
            "endpoints: [{address: a, port: 1, labels: b}]",
            "endpoints[0].labels is a text of 1 characters; it",
        ),
    ],
)
def test_a_mistake_is_said_with_its_line_and_a_remedy(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        workers_of_text(text, "w")


def test_a_file_named_json_is_json() -> None:
    assert workers_of_text('{"workers": ["http://a:1"]}', "w.json") == [A]
    with pytest.raises(ValueError, match=r"^w\.json, line 2, column 12 is not JSON: Expecting value$"):
        workers_of_text('\n{"workers":http://a:1}', "w.json")


@for_each_row(
    "text",
    [
        "workers: ['http://user:hunter2@a:1']",
        "workers: [{url: 'http://user:hunter2@a:1'}]",
        "workers: ['grpc://user:hunter2@a:1']",
        "workers: ['http://a:1/?key=hunter2']",
        "workers:\n- http://user: hunter2\n",
        "workers: [{url: http://a:1, 'http://u:hunter2@h': 1}]",
        "workers: {http://user:hunter2@a:1 : 2}",
        "http://user:hunter2@a:1",
        "{api-key:hunter2}",
        "workers: [http://a:1, {api-key:hunter2: 1}]",
        "endpoints: [{address: 'user:hunter2@a', port: 1}]",
    ],
)
def test_no_message_shows_a_password(text: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011, what it says is looked at here
        workers_of_text(text, "w")
    assert "hunter2" not in str(caught.value)


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20)
SPECS = st.lists(
    st.builds(
        WorkerSpec,
        st.builds(
            "{}://{}:{}{}".format,
            st.sampled_from(["http", "https"]),
            st.from_regex(r"[a-z][a-z0-9-]{0,5}(\.[a-z]{1,5})?", fullmatch=True) | st.just("[fd00::1]"),
            st.integers(1, 65535),
            st.sampled_from(["", "/p", "/p/q", "@3"]),
        ),
        weight=st.floats(0.01, 100),
        ready=st.booleans(),
        leaving=st.booleans(),
        drain_secs=st.none() | st.floats(0, 31_536_000),
        incarnation=TEXT,
        data_parallel_size=st.none() | st.integers(1, 800),  # 5 of them fit into a fleet
        models=st.lists(st.from_regex(r"[a-z/:]{1,9}", fullmatch=True), max_size=3),
        labels=st.dictionaries(TEXT, TEXT, max_size=3),
    ),
    unique_by=lambda spec: worker_key(spec.url).partition("@")[0],
    max_size=5,
)


def rendered(specs: list[WorkerSpec]) -> dict[str, Any]:
    names = WorkerSpec.__slots__
    rows = [{name: getattr(spec, name) for name in names} for spec in specs]
    return {
        "workers": [{**row, "labels": dict(row["labels"]), "models": list(row["models"])} for row in rows]
    }


@given(SPECS, st.sampled_from([None, 1, "\t"]), st.booleans(), st.sampled_from(["w", "w.json"]))
def test_json_gives_back_what_it_was_given(
    specs: list[WorkerSpec], indent: Any, ascii_only: bool, name: str
) -> None:
    text = json.dumps(rendered(specs), indent=indent, ensure_ascii=ascii_only)
    assert workers_of_text(text, name) == specs


@given(SPECS, st.booleans())
def test_yaml_gives_back_what_it_was_given(specs: list[WorkerSpec], flow: bool) -> None:
    text = yaml.safe_dump(rendered(specs), default_flow_style=flow)
    assert workers_of_text(text, "w") == specs


@given(st.text(st.sampled_from("{}[]:,-#&*!|>'\"%@` \n\ta1workersurl/<"), max_size=60))
def test_whatever_the_text_there_is_a_list_or_a_value_error(text: str) -> None:
    for whole in (text, f"workers: {text}", f"workers:\n- {text}"):
        with contextlib.suppress(ValueError):
            assert isinstance(workers_of_text(whole, "w"), list)


# When it is read


def listed(source: FileSource) -> list[str] | None:
    listing = source.look()
    assert (listing.complete, listing.deleted, listing.again_secs) == (True, (), 1.0)
    return None if listing.workers is None else [spec.url for spec in listing.workers]


def failure(source: FileSource) -> SourceError:
    with pytest.raises(SourceError) as caught:
        source.look()
    assert caught.value.again_secs == 1.0
    return caught.value


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "workers.yaml"
    file.write_text("workers: [http://a:1]\n")
    return file


def test_the_first_look_reads_and_the_next_ones_wait_for_a_change(path: Path) -> None:
    source = FileSource(path)
    assert listed(source) == ["http://a:1"]
    assert listed(source) is None
    path.write_text("workers: [http://a:1, http://b:1]\n")
    assert listed(source) is None  # it may still be written
    assert listed(source) == ["http://a:1", "http://b:1"]
    assert listed(source) is None


def test_a_file_that_is_being_written_is_not_read(path: Path) -> None:
    source = FileSource(path)
    source.look()
    with path.open("w") as file:
        for piece in ("workers: [http://a:1", ", http://b:1", ", http://c:1]\n"):
            file.write(piece)
            file.flush()
            assert listed(source) is None
    assert listed(source) == ["http://a:1", "http://b:1", "http://c:1"]


def test_a_last_line_without_an_end_is_awaited_for_two_more_looks(path: Path) -> None:
    source = FileSource(path)
    source.look()
    path.write_text("workers:\n- http://10.0.0.1:8000\n- http://10.0.0.2:80")
    assert [listed(source) for _ in range(3)] == [None, None, None]
    with path.open("a") as file:
        file.write("00\n")
    assert listed(source) is None
    assert listed(source) == ["http://10.0.0.1:8000", "http://10.0.0.2:8000"]
    path.write_text("workers:\n- http://a:1")  # it stays so, so it is meant
    assert [listed(source) for _ in range(5)] == [None, None, None, ["http://a:1"], None]


def test_a_first_file_without_an_end_is_awaited_and_said(path: Path) -> None:
    path.write_text("workers:\n- http://a:1")
    source = FileSource(path)
    for _ in range(2):
        error = failure(source)
        assert error.kind == "unreadable"
        assert error.message.startswith(
            f"{path} does not end in a newline, so it may be still being written; it is"
        )
    assert listed(source) == ["http://a:1"]


@pytest.mark.parametrize(
    "text", ['{"workers": ["http://a:1"]}', "{workers: [http://a:1]}", "\ufeff {workers: []}"]
)
def test_a_text_in_braces_shows_by_itself_that_it_is_whole(path: Path, text: str) -> None:
    path.write_text(text)
    assert isinstance(listed(FileSource(path)), list)
    for cut in range(text.index("{") + 1, len(text.rstrip())):
        path.write_text(text[:cut])
        assert failure(FileSource(path)).kind == "invalid"


@pytest.mark.parametrize("name", ["st_dev", "st_ino", "st_size", "st_mtime_ns"])
def test_another_file_is_told_by_each_of_these(path: Path, name: str) -> None:
    status = path.stat()
    known = {key: getattr(status, key) for key in dir(status) if key.startswith("st_")}
    other = SimpleNamespace(**{**known, name: known[name] + 1})
    source = FileSource(path)
    assert source._file._identity_of(status) == source._file._identity_of(SimpleNamespace(**known))  # type: ignore[arg-type]
    assert source._file._identity_of(status) != source._file._identity_of(other)  # type: ignore[arg-type]


def test_a_file_of_which_not_all_was_read_is_read_later(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = "workers:\n- http://a:1\n- http://b:1\n"
    path.write_text(whole)
    source = FileSource(path)
    with monkeypatch.context() as patch:
        # As after a truncation that a network file system has not told yet: the size is the former one.
        patch.setattr(
            "vllm_router._watched_file.os.fdopen",
            lambda descriptor, mode: _Short(descriptor, mode, whole.index("- http://b")),
        )
        assert failure(source).message == f"{path} changed while it was read; it is read once it is unchanged"
    assert listed(source) == ["http://a:1", "http://b:1"]


class _Short:
    """A file whose read() returns less than is there."""

    def __init__(self, descriptor: int, mode: str, length: int) -> None:
        self._file = open(descriptor, mode)  # noqa: SIM115, closed below
        self._length = length

    def read(self, size: int) -> bytes:
        content: bytes = self._file.read(size)
        return content[: self._length]

    def __enter__(self) -> _Short:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def test_a_change_of_time_alone_counts(path: Path) -> None:
    source = FileSource(path)
    source.look()
    path.write_text("workers: [http://b:1]\n")  # of the same size, in the same file
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert listed(source) is None
    assert listed(source) == ["http://b:1"]


def test_a_rename_over_it_and_the_links_of_a_config_map_count(tmp_path: Path) -> None:
    for name, url in (("..v1", "http://a:1"), ("..v2", "http://b:1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "workers.yaml").write_text(f"workers: [{url}]\n")
    (tmp_path / "..data").symlink_to("..v1")
    (tmp_path / "workers.yaml").symlink_to("..data/workers.yaml")
    source = FileSource(tmp_path / "workers.yaml")
    assert listed(source) == ["http://a:1"]
    (tmp_path / "..new").symlink_to("..v2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert listed(source) is None
    assert listed(source) == ["http://b:1"]


def test_a_broken_file_is_read_once_and_said_again_until_it_is_right(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = FileSource(path)
    source.look()
    path.write_text("workers: [http://a:1, htp://b:1]\n")
    assert listed(source) is None
    errors = [failure(source)]
    with monkeypatch.context() as patch:
        patch.setattr("vllm_router.discovery.file.workers_of_text", None)  # would raise if it were called
        errors += [failure(source), failure(source)]
    assert {error.kind for error in errors} == {"invalid"}
    assert {error.message for error in errors} == {
        f"{path}, line 1: workers[1] is htp://b:1; write URLs like http://host:8000"
    }
    path.write_text("workers: [http://a:1, http://b:1]\n")
    assert failure(source).message == errors[0].message  # it may still be written
    assert listed(source) == ["http://a:1", "http://b:1"]
    assert listed(source) is None


def test_a_file_that_is_not_there_yet_is_awaited(tmp_path: Path) -> None:
    path = tmp_path / "workers.yaml"
    source = FileSource(str(path))
    for _ in range(2):
        error = failure(source)
        assert (error.kind, error.message) == (
            "unreadable",
            f"{path} cannot be read: No such file or directory",
        )
    path.write_text("workers: [http://a:1]\n")
    assert failure(source).kind == "unreadable"  # it may still be written
    assert listed(source) == ["http://a:1"]


def test_a_file_that_vanished_is_an_error_until_it_is_back(path: Path) -> None:
    source = FileSource(path)
    source.look()
    path.rename(path.with_name("away"))
    assert failure(source).message == f"{path} cannot be read: No such file or directory"
    path.with_name("away").rename(path)
    assert failure(source).kind == "unreadable"  # renaming is a change, so it is awaited
    assert listed(source) == ["http://a:1"]


def test_an_error_of_an_older_file_does_not_come_back(path: Path) -> None:
    source = FileSource(path)
    source.look()
    path.rename(path.with_name("good"))
    path.write_text("worker: []\n")
    assert listed(source) is None
    assert failure(source).kind == "invalid"
    path.with_name("good").rename(path)
    assert failure(source).kind == "invalid"  # another file than the last one, so it is awaited
    assert listed(source) == ["http://a:1"]


def test_what_is_no_file_is_never_opened(tmp_path: Path) -> None:
    pipe, door = tmp_path / "pipe", tmp_path / "socket"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(door))
        for place, kind in (
            (tmp_path, "directory"),
            (pipe, "pipe, a socket or a device"),
            (door, "pipe, a socket or a device"),
            (Path("/dev/zero"), "pipe, a socket or a device"),
        ):
            error = failure(FileSource(place))
            assert error.kind == "unreadable"
            assert error.message.startswith(f"{place} is a {kind}; it must be a file that lists workers: ")


def test_a_pipe_that_takes_the_file_s_place_after_the_look_does_not_block(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = FileSource(path)
    before = path.stat()
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr(source._file, "_identity", lambda: source._file._identity_of(before))
    assert failure(source).message.startswith(f"{path} is a pipe, a socket or a device")


def test_a_file_that_changes_while_it_is_read_is_read_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = FileSource(path)
    before = source._file._identity()
    path.write_text("workers: [http://a:1, http://b:1]\n")
    with monkeypatch.context() as patch:
        patch.setattr(source._file, "_identity", lambda: before)
        message = f"{path} changed while it was read; it is read once it is unchanged"
        assert failure(source).message == message
    assert failure(source).message == message
    assert listed(source) == ["http://a:1", "http://b:1"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read(path: Path) -> None:
    path.chmod(0)
    error = failure(FileSource(path))
    assert (error.kind, error.message) == ("unreadable", f"{path} cannot be read: Permission denied")


def test_a_link_to_itself_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "workers.yaml"
    path.symlink_to(path)
    assert failure(FileSource(path)).message.startswith(f"{path} cannot be read: Too many levels")


def test_a_file_that_is_no_utf_8(path: Path) -> None:
    path.write_bytes(b"workers:\n- http://a:1 # caf\xe9\n")
    source = FileSource(path)
    for _ in range(2):
        error = failure(source)
        assert (error.kind, error.message) == (
            "invalid",
            f"{path}, line 2: this is not UTF-8 text; save the file as UTF-8",
        )


def test_a_byte_order_mark_is_no_part_of_the_text(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbf" + b'{"workers": ["http://a:1"]}')
    assert listed(FileSource(path)) == ["http://a:1"]


def test_a_file_that_is_too_long_is_not_read(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(2**40)  # sparse
    error = failure(FileSource(path))
    assert (error.kind, error.message) == (
        "invalid",
        f"{path} has more than {MAX_YAML_BYTES} bytes, which is the limit for a file of workers; list fewer "
        "workers in it, or name another one by --worker-file",
    )


def test_a_file_without_workers_is_a_list_and_an_empty_one_is_not(path: Path) -> None:
    path.write_text("workers: []\n")
    assert FileSource(path).look() == Listing([])
    path.write_text("")
    assert failure(FileSource(path)).message.startswith(f"{path} is empty; write workers: [")


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        (("",), ValueError, "path is ''; it must be the path of a file"),
        (("a\0b",), ValueError, "it must be the path of a file"),
        ((b"workers",), TypeError, "path is a bytes of 7; it must be a str or a pathlib.Path"),
        (("w", 0), ValueError, "poll_secs is 0; it must be a number of seconds between 0.01 and 3600"),
        (("w", True), ValueError, "poll_secs is true; "),
    ],
)
def test_arguments_that_do_not_fit(arguments: Any, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=re.escape(sentence)):
        FileSource(*arguments)


def test_the_time_between_two_looks_is_the_source_s(path: Path) -> None:
    source = FileSource(path, poll_secs=0.25)
    assert source.look().again_secs == source.look().again_secs == 0.25
