"""settings/admission.py: a file of priority classes as lines for the core, and what is wrong with one."""

import pytest

from vllm_router.settings.admission import admission_of_yaml

DESIGNED = """
classes:
  - {name: interactive, queue_size: 256,  queue_timeout: 30s}
  - {name: default,     queue_size: 512,  queue_timeout: 60s,  kv_ceiling: 0.95, age_after: 30s}
  - {name: batch, queue_size: 8192, queue_timeout: 600s, kv_ceiling: 0.5, idle_only: true, evict: false}
order: strict
alias_classes: {nightly: batch, "two words": interactive}
engine_priority: {engine: sglang, client: clamp, values: {batch: 20}}
tenants:
  default: {weight: 0.5, requests_per_minute: 60}
  search:  {weight: 4, concurrency: 64, tokens_per_minute: 600000, burst: 5s}
  idle:    {}
  free:    {requests_per_minute: 0}
"""
DEFAULTS = [
    "class interactive queue_size=256 queue_timeout_ms=30000 gate=open age_after_ms=0",
    "class default queue_size=512 queue_timeout_ms=60000 gate=gated kv_ceiling=0.95 age_after_ms=30000",
    "class batch queue_size=8192 queue_timeout_ms=600000 gate=idle_only kv_ceiling=0.5 age_after_ms=0",
]


def lines_of(text):
    return admission_of_yaml(text, "classes.yaml").split("\n")


def test_a_whole_file():
    more = ["alias batch nightly", "alias interactive two words"]
    more += [
        "tenant weight=0.5 requests_per_minute=60 burst_ms=10000 default",
        "tenant weight=0.5 free",
        "tenant weight=0.5 requests_per_minute=60 burst_ms=10000 idle",
        "tenant weight=4.0 concurrency=64 requests_per_minute=60 tokens_per_minute=600000 "
        "burst_ms=5000 search",
    ]
    more += ["engine sglang client=clamp interactive=-10 default=0 batch=20"]
    assert lines_of(DESIGNED) == [*DEFAULTS, *more]


@pytest.mark.parametrize("text", ["classes: [{name: default}]", "classes: [{name: batch}]\norder: strict"])
def test_what_is_left_out_has_its_default(text):
    assert lines_of(text) == DEFAULTS


def test_a_ceiling_that_is_not_given_is_at_most_that_of_the_class_above():
    lines = lines_of("classes: [{name: interactive, kv_ceiling: 0.3}]")
    assert [line.partition("kv_ceiling=")[2].split()[0] for line in lines] == ["0.3", "0.3", "0.3"]


def test_weights():
    lines = lines_of("classes: [{name: batch}]\norder: {weighted: {interactive: 8, default: 3, batch: 0.5}}")
    assert [line.rpartition(" ")[2] for line in lines] == ["weight=8.0", "weight=3.0", "weight=0.5"]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("name: interactive, kv_ceiling: 0.9", "gate=gated kv_ceiling=0.9"),
        ("name: batch, idle_only: false, kv_ceiling: 0.8", "gate=gated kv_ceiling=0.8"),
        ("name: batch, idle_only: false", "gate=gated kv_ceiling=0.95"),
        ("name: batch, queue_timeout: 1.5", "queue_timeout_ms=1500"),
        ("name: batch, queue_timeout: 2m", "queue_timeout_ms=120000"),
        ("name: default, age_after: 0", "age_after_ms=0"),
        ("name: batch, queue_size: 0", "queue_size=0"),
        ("name: batch, evict: true", "evict=true"),
    ],
    ids=["ceiling", "no-idle", "no-ceiling", "seconds", "minutes", "no-ageing", "no-queue", "evict"],
)
def test_members(row, words):
    extra = ", kv_ceiling: 0.9" if "interactive" in row else ""
    text = f"classes:\n  - {{{row}}}\n"
    if extra:
        text += "  - {name: default, kv_ceiling: 0.9}\n"
    name = row.split(":")[1].split(",")[0].strip()
    (line,) = [line for line in lines_of(text) if line.startswith(f"class {name} ")]
    assert words in line


@pytest.mark.parametrize(
    ("member", "words"),
    [
        ("fill: 0.8", "fill=0.8"),
        ("max_wait: 5m", "max_wait_ms=300000"),
        ("ttl: auto", "ttl_ms=0"),
        ("ttl: 30", "ttl_ms=30000"),
        ("forget: 10m, capacity: 320000", "forget_ms=600000 capacity=320000"),
        ("max_active_per_tenant: 4", "max_active_per_tenant=4"),
    ],
    ids=["fill", "max_wait", "auto", "ttl", "forget", "tenant"],
)
def test_programs_may_stand_alone_or_behind_classes(member, words):
    assert lines_of(f"programs: {{{member}}}") == [f"programs {words}"]
    assert lines_of(f"classes: [{{name: batch}}]\nprograms: {{{member}}}")[-1] == f"programs {words}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "classes.yaml is empty; write classes: "),
        ("- a", "classes.yaml, line 1: this is"),
        ("order: strict", "line 1: there are no classes"),
        ("classes: []", "line 1: classes is"),
        ("classes: [batch]", r"line 1: classes\[0\] is batch; it must be a mapping with name"),
        ("classes:\n  - {queue_size: 1}", r"line 2: classes\[0\] has no name; it is one of interactive"),
        ("classes:\n  - {name: gold}", r"line 2: classes\[0\]\.name is gold; it must be one of interactive"),
        (
            "classes:\n  - {name: batch}\n  - {name: default}",
            r"line 3: classes\[1\] is default behind batch in line 2; each class stands once",
        ),
        ("classes:\n  - {name: batch}\n  - {name: batch}", r"line 3: classes\[1\] is batch behind batch"),
        (
            "classes:\n  - name: batch\n    queue_size: -1",
            r"line 3: classes\[0\]\.queue_size is -1; it must be a whole number between 0 and 65536",
        ),
        ("classes: [{name: batch, queue_size: true}]", "queue_size is true"),
        (
            "classes: [{name: batch, queue_timeout: soon}]",
            "queue_timeout is soon; it must be a number of seconds",
        ),
        ("classes: [{name: batch, queue_timeout: 0}]", "queue_timeout is 0"),
        ("classes: [{name: batch, kv_ceiling: 50}]", "kv_ceiling is 50; it must be a share of the KV cache"),
        ("classes: [{name: batch, idle_only: 1}]", "idle_only is 1; it must be true or false"),
        ("classes: [{name: batch, evict: 1}]", "evict is 1; it must be true or false"),
        (
            "classes: [{name: interactive, evict: true}]",
            "evict is true, and it has no class above; remove it",
        ),
        (
            "classes:\n  - {name: default, evict: true}\n  - {name: batch}",
            "line 3: default has evict and batch, which is below it, has not; set evict for batch, too",
        ),
        ("classes: [{name: batch, age_after: 9s}]", "age_after is 9s, and an idle_only class"),
        ("classes: [{name: interactive, age_after: 9s}]", "age_after is 9s, and it has no class above"),
        ("classes: [{name: batch, size: 1}]", r"classes\[0\]\.size is not known"),
        (
            "classes: [{name: default, idle_only: true}, {name: batch, idle_only: false}]",
            "batch, which is below it",
        ),
        (
            "classes:\n  - {name: default, kv_ceiling: 0.4}\n  - {name: batch, kv_ceiling: 0.5}",
            "line 3: the kv_ceiling of batch is 0.5 and that of default, which is above it, 0.4",
        ),
        ("classes: [{name: batch}]\norder: fair", "line 2: order is fair; it must be strict"),
        ("classes: [{name: batch}]\norder: {weighted: {batch: 1}}", "has no weight for interactive"),
        ("classes: [{name: batch}]\norder: {weighted: {gold: 1}}", "order.weighted.gold is no class"),
        ("classes: [{name: batch}]\norder: {weighted: {batch: 0}}", "order.weighted.batch is 0"),
        ("classes: [{name: batch}]\nalias_classes: {a: gold}", "line 2: alias_classes.a is gold"),
        (
            "programs: {fill: 1.1}",
            r"programs\.fill is 1\.1; it must be a share of the KV cache, above 0 and up",
        ),
        ("programs: {max_wait: 0}", r"programs\.max_wait is 0; it must be a number of seconds"),
        ("programs: {capacity: many}", r"programs\.capacity is many; it must be a whole number"),
        ("programs: {filll: 1}", r"line 1: programs\.filll is not known; did you mean fill"),
        ("programs: [1]", "line 1: programs is"),
        ("classes: [{name: batch}]\nengine_priority: vllm", "line 2: engine_priority is vllm; it must be"),
        ("classes: [{name: batch}]\nengine_priority: {}", "line 2: engine_priority has no engine"),
        (
            "classes: [{name: batch}]\nengine_priority: {engine: trt}",
            "engine_priority.engine is trt; it must",
        ),
        (
            "classes: [{name: batch}]\nengine_priority: {engine: vllm, client: never}",
            "engine_priority.client is never; it must be one of keep, clamp, replace",
        ),
        (
            "classes: [{name: batch}]\nengine_priority: {engine: vllm, sign: 1}",
            "engine_priority.sign is not known",
        ),
        (
            "classes: [{name: batch}]\nengine_priority: {engine: vllm, values: {batch: 0.5}}",
            "engine_priority.values.batch is 0.5; it must be a whole number",
        ),
        (
            "classes: [{name: batch}]\nengine_priority: {engine: vllm, values: {batch: -20}}",
            "a higher class has the same or a lower number",
        ),
        ("classes: [{name: batch}]\ntenants: [a]", "line 2: tenants is"),
        ("classes: [{name: batch}]\ntenants: {a b: {weight: 1}}", "tenants.a b is no name of a tenant"),
        ("classes: [{name: batch}]\ntenants: {other: {weight: 1}}", "tenants.other is no name of a tenant"),
        (
            "classes: [{name: batch}]\ntenants: {a: 4}",
            "tenants.a is 4; it must be a mapping with weight or limits",
        ),
        ("classes: [{name: batch}]\ntenants: {a: {weight: 0}}", "tenants.a.weight is 0"),
        ("classes: [{name: batch}]\ntenants: {a: {wait: 1}}", "line 2: tenants.a.wait is not known"),
        (
            "classes: [{name: batch}]\ntenants: {a: {queue_size: 9}}",
            "tenants.a.queue_size is not implemented",
        ),
        (
            "classes: [{name: batch}]\ntenants: {a: {burst: 0}}",
            "tenants.a.burst is 0; it must be a number of",
        ),
        (
            "classes: [{name: batch}]\ntenants: {a: {concurrency: -1}}",
            "tenants.a.concurrency is -1; it must be a whole number between 0 and 1000000",
        ),
        (
            "classes: [{name: batch}]\ntenants: {a: {requests_per_minute: 0.5}}",
            "tenants.a.requests_per_minute is 0.5; it must be a whole number between 0 and 60000000",
        ),
        (
            "classes: [{name: batch}]\ntenants: {a: {tokens_per_minute: many}}",
            "tenants.a.tokens_per_minute is many; it must be a whole number between 0 and 100000000000",
        ),
        ("classes: [{name: batch}]\ntenants: {a: {tokens_per_minut: 1}}", "did you mean tokens_per_minute"),
        ("classes: [{name: batch}]\nclases: 1", "did you mean classes"),
        ("classes: [{name: batch}]\nclasses: []", "line 2: classes is in line 1 already"),
    ],
)
def test_a_mistake_names_its_line(text, message):
    with pytest.raises(ValueError, match=message):
        lines_of(text)


def test_a_mistake_shows_no_secret():
    with pytest.raises(ValueError, match="line 2") as caught:
        lines_of("classes:\n  - {name: batch, queue_size: 'sk-very-secret" + "x" * 90 + "'}")
    assert "sk-very-secret" not in str(caught.value)
