"""cpp/bindings/callables.cc: what functions say of themselves, and of a call that does not fit.

A request's bytes must not reach an exception, since exceptions reach logs.
"""

import ast
import contextlib
import inspect
import io
import re
import traceback
from pathlib import Path

import numpy as np
import pytest

import vllm_router
from vllm_router import BlockCacheTracker, HashRing, Router, RouterArgs, StringTree, TokenTree, _core
from vllm_router import _core_testing as testing
from vllm_router import hash_blocks as hash_prompt

SECRET = "pa\tss \N{SNOWMAN} phrase" * 8_000
LONGEST = 1_000  # of a whole message: the names of all arguments may be in it
URLS = ["http://w1:8000", "http://w2:8000"]
STUB = ast.parse(Path(vllm_router.__file__).with_name("_core.pyi").read_text())


@pytest.fixture
def things():
    router = Router("least_load", URLS)
    ticket = router.select(prompt="Hello")
    batch = router.select_batch(["Hello"])
    yield {
        "Router": router,
        "Ticket": ticket,
        "Batch": batch,
        "HashRing": HashRing(URLS),
        "BlockCacheTracker": BlockCacheTracker(),
        "StringTree": StringTree(),
        "TokenTree": TokenTree(),
    }
    ticket.finish()
    batch.finish()


def message_of(function, *args, **kwargs):
    """What the call raises, in every form in which it may be logged."""
    with pytest.raises(Exception) as raised:  # noqa: PT011, any; what it is is not the question here
        function(*args, **kwargs)
    error = raised.value
    forms = [str(error), repr(error), "".join(traceback.format_exception_only(type(error), error))]
    assert max(len(form) for form in forms) < LONGEST, forms[0][:200]
    for form in forms:
        assert "phrase" not in form
        assert "\N{SNOWMAN}" not in form
    assert error.__cause__ is None
    assert "phrase" not in repr(error.__context__)
    return str(error)


# Mistakes in calls


def test_a_misspelt_keyword_names_the_nearest_one_and_not_the_prompt(things):
    """mending row 41: the message had the whole prompt in it."""
    router = things["Router"]
    assert message_of(router.select, promt=SECRET) == (
        "Router.select() has no argument 'promt'; did you mean prompt?"
    )
    assert "did you mean headers?" in message_of(router.select, SECRET.encode(), header={"a": SECRET})
    assert "did you mean prompts?" in message_of(router.select_batch, promts=[SECRET])
    assert "did you mean end?" in message_of(things["Ticket"].finish, ende=SECRET)
    assert "did you mean token_ids?" in message_of(hash_prompt, tokens_ids=SECRET)
    assert "did you mean virtual_nodes?" in message_of(HashRing, [SECRET], virtual_node=3)


def test_a_keyword_like_none_is_answered_with_those_there_are(things):
    assert message_of(things["Batch"].finish, zzzzzzzz=SECRET) == (
        "Batch.finish() has no argument 'zzzzzzzz'; it takes rows, status, end, tokens, prompt_tokens, "
        "cached_tokens"
    )
    assert message_of(things["Batch"].finish, **{SECRET: 1}).startswith(
        f"Batch.finish() has no argument of {len(SECRET.encode())} characters; "
    )
    assert message_of(things["Ticket"].first_token, now=SECRET) == (
        "Ticket.first_token() has no argument 'now'; it takes none"
    )


def test_mistakes_of_place_and_number_quote_nothing(things):
    """mending row 41: arguments by position, twice, missing, and on a class instead of an instance."""
    router = things["Router"]
    assert message_of(router.select, SECRET, SECRET) == (
        "Router.select() takes at most 1 argument by position (body) and got 2; give the others by name: "
        "prompt, messages, token_ids, headers, model, path, exclude, among, alternatives, explain, "
        "shared_ranges, override"
    )
    assert message_of(things["Ticket"].finish, SECRET).startswith(
        "Ticket.finish() takes no arguments by position and got 1; give them by name: status, end"
    )
    assert message_of(router.select, SECRET, body=SECRET) == (
        "Router.select() got body twice, by position and by name; give it once"
    )
    assert message_of(things["StringTree"].insert, SECRET) == (
        "StringTree.insert() needs the argument worker, which is missing"
    )
    assert message_of(Router.select, SECRET) == (
        "Router.select() is a method; call it on an instance of Router, not on a str"
    )


def test_values_of_a_wrong_type_or_range_are_named_and_not_quoted(things):
    """mending row 41: pybind11 showed each value that was given."""
    ticket = things["Ticket"]
    assert message_of(ticket.finish, status=SECRET) == (
        "Ticket.finish(): status is of type str; it must be int | None"
    )
    assert message_of(ticket.finish, output_tokens=-1) == (
        "Ticket.finish() cannot take these arguments, one of which is out of its range: output_tokens is -1"
    )
    assert message_of(things["HashRing"].add, "w3", SECRET) == (
        "HashRing.add(): weight is of type str; it must be float"
    )
    assert message_of(things["Router"].set_healthy, URLS[0], SECRET).endswith("it must be bool")
    assert "worker is of type" in message_of(things["HashRing"].remove, [SECRET])


def call_each(things):
    """Every method and constructor of the package, called with a prompt where nothing of the kind belongs."""
    functions = {name: getattr(vllm_router, name) for name in vllm_router.__all__ if name[0].isupper()}
    functions = {
        name: value
        for name, value in functions.items()
        if not issubclass(value, (BaseException, vllm_router.PolicyType, tuple, RouterArgs))
    }
    functions["hash_blocks"] = hash_prompt
    functions |= {name: getattr(_core, name) for name in ("configure_log", "log", "SimulatedWorker")}
    functions["_core.Router"] = _core.Router
    functions["_core.Server"] = _core.Server
    functions["simulate"] = _core.replay.simulate
    for name, thing in things.items():
        for attribute in dir(thing):
            method = getattr(thing, attribute)
            if callable(method) and not attribute.startswith("__"):
                functions[f"{name}.{attribute}"] = method
    return functions


def test_no_function_of_the_package_quotes_a_prompt(things):
    for name, function in call_each(things).items():
        for args, kwargs in [
            ((), {"no_such_name": SECRET}),
            ((SECRET,), {"no_such_name": 1}),
            ((SECRET,) * 9, {}),
            (([SECRET],) * 9, {}),
            ((), {"no_such_name": {"prompt": [SECRET]}}),
        ]:
            try:
                message_of(function, *args, **kwargs)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from None


def test_values_that_are_refused_further_in_are_not_quoted(things):
    """mending row 41: a prompt where the name of a worker, a policy or an outcome belongs."""
    router, ring = things["Router"], things["HashRing"]
    tracker, tree = things["BlockCacheTracker"], things["StringTree"]
    calls = [
        (router.add_worker, SECRET),
        (router.remove_worker, SECRET),
        (router.drain_worker, SECRET),
        (router.set_healthy, SECRET, True),
        (ring.remove, SECRET),
        (tracker.block_count, SECRET),
        (tracker.evict_worker, SECRET, 3),
        (tree.size, SECRET),
        (Router, SECRET),
        (Router, "random", SECRET),
        (Router, "random", [SECRET]),
        (HashRing, SECRET),
        (HashRing, {SECRET: SECRET}),
        (HashRing, [SECRET, SECRET]),
    ]
    for function, *args in calls:
        message_of(function, *args)
    message_of(things["Ticket"].finish, end=SECRET)
    message_of(router.select, exclude=SECRET)
    message_of(Router("cache_aware", URLS).select, token_ids=[SECRET])
    message_of(Router("consistent_hash", URLS).select, headers=[SECRET])
    message_of(ring.lookup_bounded, "key", {SECRET: 1})
    message_of(HashRing, URLS, hash_function=SECRET)
    message_of(StringTree, eviction=SECRET)
    message_of(hash_prompt, [1], scheme=SECRET)
    message_of(hash_prompt, [SECRET])
    message_of(Router, "cache_aware", URLS, cache_threshold=SECRET)
    message_of(RouterArgs(policy=SECRET)._validate_router_args)


def test_a_file_that_a_server_cannot_use_is_named_however_long_its_path(tmp_path):
    """mending row 41: settings of the server are no prompts, and a path that is left out helps nobody."""
    path = tmp_path / ("x" * 100) / "certificate.pem"
    with pytest.raises(OSError, match=r"cannot be used") as raised:
        Router("random", URLS).serve(tls_cert_path=str(path), tls_key_path=str(path))
    assert str(path) in str(raised.value)


def test_half_a_surrogate_pair_does_not_take_the_text_along():
    """mending row 41: the repr of a UnicodeEncodeError has the text that could not be encoded."""
    router = Router("cache_aware", URLS)
    message = message_of(router.select, prompt=SECRET + "\ud800")
    assert f"it is character {len(SECRET)} of the text" in message
    with pytest.raises(UnicodeEncodeError):
        router.select(prompt="\ud800")


def test_settings_with_an_unknown_name_name_the_nearest_one():
    with pytest.raises(
        TypeError, match="RouterArgs: virtual_node is not a known setting; did you mean virtual_nodes"
    ):
        RouterArgs(virtual_node=3)
    message_of(RouterArgs, **{SECRET: SECRET})


def test_errors_that_come_from_elsewhere_stay_what_they_are(things):
    class OddError(Exception):
        pass

    def urls():
        yield URLS[0]
        raise OddError("a message of more than eighty characters, the business of the caller alone " * 2)

    with pytest.raises(OddError) as raised:
        things["Router"].select(exclude=urls())
    assert str(raised.value).startswith("a message of more")
    assert raised.value.__traceback__.tb_next.tb_frame.f_code.co_name == "urls"
    with pytest.raises(ValueError, match=r"status is 700; it is the HTTP status"):
        things["Ticket"].finish(status=700)


# What functions say of themselves


def stub_functions():
    """Qualified name, node and owner of every function and property of the stub."""
    seen = set()
    for node in STUB.body:
        members = (
            [(node.name + ".", member) for member in node.body] if isinstance(node, ast.ClassDef) else []
        )
        for scope, member in [*members, ("", node)]:
            if isinstance(member, ast.FunctionDef) and scope + member.name not in seen:
                seen.add(scope + member.name)
                yield scope + member.name, member


def parameters_of(node):
    """(name, kind, default) of each parameter in the stub."""
    given = node.args
    defaults = [None] * (len(given.args) - len(given.defaults)) + given.defaults
    either, named = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    rows = [(arg, either, value) for arg, value in zip(given.args, defaults, strict=True)]
    rows += [(arg, named, value) for arg, value in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    if given.kwarg:
        rows.append((given.kwarg, inspect.Parameter.VAR_KEYWORD, None))
    return [
        (arg.arg, kind, inspect.Parameter.empty if value is None else ast.literal_eval(value))
        for arg, kind, value in rows
    ]


def found(name):
    thing = _core
    for part in name.split("."):
        thing = inspect.getattr_static(thing, part) if inspect.isclass(thing) else getattr(thing, part)
    return thing


def test_signatures_and_docstrings_are_those_of_the_stub():
    """mending row 42: help() and inspect.signature had nothing to show."""
    compared = 0
    for name, node in stub_functions():
        thing = found(name)
        if isinstance(thing, property):
            assert (inspect.getdoc(thing) or "") == (ast.get_docstring(node) or ""), name
            continue
        owner, _, method = name.rpartition(".")
        function = getattr(found(owner), method) if owner else thing
        signature = inspect.signature(function)
        shown = [(each.name, each.kind, each.default) for each in signature.parameters.values()]
        assert shown == parameters_of(node), name
        assert not ast.get_docstring(node) or inspect.getdoc(function) == ast.get_docstring(node), name
        compared += 1
    assert compared > 60


def test_classes_have_the_signature_of_their_constructor_and_the_docstring_of_the_stub():
    for node in STUB.body:
        if not isinstance(node, ast.ClassDef) or node.name == "replay":
            continue
        cls = getattr(_core, node.name)
        assert (cls.__doc__ or "") == (ast.get_docstring(node) or ""), node.name
        for member in node.body:
            if isinstance(member, ast.FunctionDef) and member.name == "__init__":
                shown = inspect.signature(cls).parameters.values()
                assert [(each.name, each.kind, each.default) for each in shown] == parameters_of(member)[1:]
    assert str(inspect.signature(HashRing)) == "(workers=(), *, virtual_nodes=160, hash_function='furc')"


def bound_names(signature):
    """Names of arguments in pybind11's own signature, such as "(self: X, a: int = 3, *, b: str) -> int"."""
    inner, depth, quote, part, parts = signature[1 : signature.rindex(") ->")], 0, "", "", []
    for letter in inner + ",":
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        depth += letter in "([{"
        depth -= letter in ")]}"
        if letter == "," and depth == 0 and not quote:
            parts.append(part.strip())
            part = ""
        else:
            part += letter
    return [re.split(r"[:=]", each)[0].strip() for each in parts if each]


def test_the_bindings_take_what_the_stub_says():
    """mending row 42: a name in one of them only would be a lie in the other."""
    for name, node in stub_functions():
        owner, _, method = name.rpartition(".")
        function = getattr(found(owner), method) if owner else found(name)
        if isinstance(function, property):
            continue
        names, star = [], False
        for parameter, kind, _ in parameters_of(node):
            if kind is inspect.Parameter.KEYWORD_ONLY and not star:
                names, star = [*names, "*"], True
            names.append("**kwargs" if kind is inspect.Parameter.VAR_KEYWORD else parameter)
        written = bound_names(testing.bound_signature(function))
        if method in ("__enter__", "__exit__", "__contains__", "__eq__"):  # Python calls these by position
            assert len(written) == len(names), name
        else:
            assert written == names, name


def test_everything_that_is_bound_is_in_the_stub():
    """mending row 42: what is not there would have no docstring."""
    known = {name for name, _ in stub_functions()}
    for node in STUB.body:
        if isinstance(node, ast.ClassDef):
            known |= {
                f"{node.name}.{each.target.id}" for each in node.body if isinstance(each, ast.AnnAssign)
            }
    missing = []
    for name, value in vars(_core).items():
        if inspect.isclass(value):
            members = {f"{name}.{member}" for member in vars(value) if not member.startswith("_")}
            missing += sorted(members - known)
        elif inspect.isbuiltin(value) and name not in known:
            missing.append(name)
    assert missing == []


def test_help_shows_signature_and_docstring():
    """mending row 42: help() on a class, a method and a function."""
    for thing, words in [
        (Router, ("select(self, body=None, *, prompt=None", "Choose a worker for one request", "add_worker")),
        (Router.select, ("select(self, body=None", "openai client's spelling")),
        (
            HashRing,
            ("HashRing(workers=(), *, virtual_nodes=160", "lookup_bounded(self, key, loads, ep"),
        ),
        (hash_prompt, ("hash_blocks(token_ids, block_size=16, *, scheme='chained'",)),
    ]:
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            help(thing)
        for word in words:
            assert word in text.getvalue(), (thing, word)


def test_bound_methods_have_a_signature_without_self(things):
    assert str(inspect.signature(things["BlockCacheTracker"].record_request)) == "(token_ids, worker)"
    inspect.signature(things["Router"].select).bind(b"{}", headers={})
    with pytest.raises(TypeError):
        inspect.signature(things["Router"].select).bind(b"{}", b"{}")
    assert np.array(things["Batch"].workers).shape == (1,)


def test_calls_by_name_mean_the_same_however_they_are_written():
    """`select()` takes a shorter way where its arguments come by name; it must lead to the same place."""
    router = Router("cache_aware", URLS, seed=1)
    name = "".join(["pro", "mpt"])  # not interned, as names that come out of a file
    with pytest.raises(TypeError, match="give it once"):
        router.select("a", body="b")
    assert router.select(**{name: "Hello"}).total == router.select(prompt="Hello").total == 5
    assert router.select(exclude=[URLS[0]], prompt="Hello").worker_url == URLS[1]
    assert Router.select(router, explain=True, token_ids=[1, 2, 3]).total == 3
    ticket = router.select(body='{"prompt": "Hello!"}', among=URLS, alternatives=1, path=None, model=None)
    assert (ticket.total, len(ticket.alternatives())) == (6, 1)
    assert router.select('{"prompt": "Hello!"}', headers={}).total == 6
    assert sum(worker.load for worker in router.workers) == 1
    with pytest.raises(TypeError, match=r"^Router.select\(\) has no argument 'promt'; did you mean prompt\?"):
        router.select(promt="Hello")
    with pytest.raises(TypeError, match="call it on an instance of Router"):
        Router.select(URLS, prompt="Hello")
    with pytest.raises(TypeError, match="alternatives is of type str"):
        router.select(prompt="Hello", alternatives="2")
    defaults = [each.default for each in inspect.signature(Router.select).parameters.values()][1:]
    assert defaults == [None] * 7 + [(), None, 0, False, None, None]  # and so the table of the shorter way
