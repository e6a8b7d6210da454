"""Texts that users read use the field's terms; CONTRIBUTING.md, "Words", has the rules.

Checked are the README, the helps of all commands, and the messages in the sources: string literals of several
words in cpp/ and python/, which are error texts, HELP lines of metrics and lines of the log.
"""

import argparse
import ast
import re
from pathlib import Path

from tests.repo.rules import none_of
from vllm_router import demo, launch_router, simulate_worker
from vllm_router.replay import command
from vllm_router.router_args import FLAGS

ROOT = Path(__file__).parents[2]

# The word, and what to write instead.
WORDS = {
    r"answer(s|ed|ing)?": "response, respond, return",
    r"ask(s|ed|ing)?": "request, poll, send",
    r"questions?": "request, poll, turn",
    r"somebody|someone|nobody|anybody|everybody|whoever|whom?": "name the subject: client, worker, process",
    r"by lot": "at random",
    r"beginnings?": "prefix, start",
    r"lets? go": "cancel, abort, release",
    r"judg(e|es|ed|ing)": "validate, decide",
    r"seats?": "concurrent requests, permit",
    r"rests|rested|resting|a rest": "back-off (of a worker), idle (of a connection)",
    r"warmth": "slow start",
    r"(in|the) line (before|for)|(stand|stands|stood|wait|waits) in line|longer line": "queue",
    r"tries|tried again|try again": "attempt, retry",
    r"the (least|most) (?!loaded|recently)\w+": "minimum, maximum, lowest, highest",
    r"refus(e|es|ed|al)": "reject",
    r"circle": "loop",
    r"vouch(es)?|heeded|errand|gatekeeper|by turns": "the field's term",
}
PATTERN = re.compile("|".join(rf"\b(?:{word})\b" for word in WORDS), re.IGNORECASE)

# Where such a word is the right one.
EXCEPTIONS = {
    r"connection (was )?refused|refused the connection": "what TCP calls it (ECONNREFUSED)",
    r"answers:|Default: answers|use answers": "a word of --response-cache-coalesce, as other routers have it",
    r"refused \((a change|the request)|nobody \(every worker|serving, resting, draining": "values of labels",
    r"which the request did not ask for|than the request asked for": "the Upgrade field of a request",
}
EXCEPTED = re.compile("|".join(EXCEPTIONS))

NOT_FOR_USERS = re.compile(r"testing_\w+\.cc$")


def instead_of(found):
    return next(new for word, new in WORDS.items() if re.fullmatch(word, found, re.IGNORECASE))


def bad_words(texts):
    """A sentence for each word of the list: file, text, word and replacement."""
    return [
        f"{place}: {text!r} has {found[0]!r}; write instead: {instead_of(found[0])}"
        for place, text in texts
        for found in PATTERN.finditer(EXCEPTED.sub("", text))
    ]


def literals_of_cpp(text):
    """String literals in order, those side by side as one; comments and raw strings left out."""
    token = re.compile(
        r'//[^\n]*|R"\(.*?\)"|"((?:[^"\\\n]|\\.)*)"|\'(?:[^\'\\]|\\.)\'|[^\s"\'/]+|/', re.DOTALL
    )
    joined = ""
    for match in token.finditer(text):
        if match[1] is not None:
            joined += match[1]
        elif not match[0].startswith("//"):
            if " " in joined.strip():
                yield joined
            joined = ""


def literals_of_python(source):
    """String constants that are no docstrings."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if " " in text.strip() and id(node) not in docstrings:
            yield text


def messages():
    for folder, suffixes, literals in (
        ("cpp", {".cc", ".h"}, literals_of_cpp),
        ("python", {".py"}, literals_of_python),
    ):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes and not NOT_FOR_USERS.search(path.name):
                for literal in literals(path.read_text()):
                    yield path.relative_to(ROOT), literal


def helps():
    for name, parser in {
        "vllm-router": launch_router._make_parser(),
        "vllm-router demo": demo.make_parser(),
        "vllm-router replay": command.make_parser(),
        "vllm-router simulate-worker": simulate_worker.make_parser(),
    }.items():
        yield name, f"{parser.description} {parser.epilog}"
        for action in parser._actions:
            if action.help not in (None, argparse.SUPPRESS):
                yield f"{name} {action.option_strings or action.dest}", action.help


def test_messages_in_the_sources_use_the_fields_terms():
    texts = list(messages())
    assert len(texts) > 1500
    none_of(bad_words(texts), 'write these texts in the field\'s terms (CONTRIBUTING.md, "Words")')


def test_helps_use_the_fields_terms():
    texts = list(helps())
    assert len(texts) > 150
    none_of(bad_words(texts), 'write these texts in the field\'s terms (CONTRIBUTING.md, "Words")')


def test_the_readme_uses_the_fields_terms():
    none_of(
        bad_words([("README.md", line) for line in (ROOT / "README.md").read_text().splitlines()]),
        'write these texts in the field\'s terms (CONTRIBUTING.md, "Words")',
    )


def test_no_help_opens_with_whether():
    opens = [place for place, text in helps() if text.lower().startswith("whether")]
    opens += [flag.spelling for flag in FLAGS.values() if flag.what.startswith("whether")]
    none_of(opens, "say what the option sets, or what the switch does")


def test_a_word_is_found_with_its_replacement():
    (sentence,) = bad_words([("cpp/a.cc", "the worker that was asked refused the connection")])
    assert sentence == (
        "cpp/a.cc: 'the worker that was asked refused the connection' has 'asked'; "
        "write instead: request, poll, send"
    )
    assert list(
        literals_of_cpp('Log("no "\n"answer"); // "an answer"\nf("x", R"(a "b c")", "two words")')
    ) == [
        "no answer",
        "two words",
    ]
