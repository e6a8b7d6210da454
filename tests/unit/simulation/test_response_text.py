"""cpp/simulation/response_text.h: the stand-ins for a tokenizer and a model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing


def test_a_token_is_a_window_of_four_bytes():
    assert testing.tokens_of_text(b"Hello worlds") == [0x6C6C6548, 0x6F77206F, 0x73646C72]


@pytest.mark.parametrize(("length", "count"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2)])
def test_the_last_token_may_be_short(length, count):
    assert len(testing.tokens_of_text(b"x" * length)) == count


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0")))
def test_tokens_turn_back_into_their_text(text):
    assert testing.text_of_tokens(testing.tokens_of_text(text.encode())).decode() == text


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_the_tokens_of_a_beginning_are_the_beginning_of_the_tokens(begin, rest):
    whole = len(begin) // 4
    assert testing.tokens_of_text(begin + rest)[:whole] == testing.tokens_of_text(begin)[:whole]


def test_the_same_prompt_always_has_the_same_answer():
    assert testing.response_text(b"Hello", 5) == testing.response_text(b"Hello", 5) == PINNED
    assert testing.response_text(b"Hello", 3) == PINNED[:12]


PINNED = " log old old run oak"


def test_other_prompts_and_other_choices_have_other_answers():
    answers = {
        testing.response_text(prompt, 20, choice) for prompt in (b"Hello", b"Hallo") for choice in (0, 1)
    }
    assert len(answers) == 4


def test_an_answer_token_is_one_token():
    text = testing.response_text(b"Hello", 100).encode()
    assert len(text) == 400
    assert len(testing.tokens_of_text(text)) == 100


@given(st.binary(max_size=100), st.integers(0, 30), st.integers(1, 5))
def test_the_chain_with_the_answer_is_the_chain_of_the_text_with_the_answer(prompt, tokens, block_tokens):
    text = prompt + testing.response_text(prompt, tokens).encode()
    chain = testing.block_chain(testing.tokens_of_text(text), block_tokens)
    got = testing.chain_with_answer(prompt, tokens, block_tokens)
    prompt_tokens = len(testing.tokens_of_text(prompt))
    if len(prompt) % 4 and prompt_tokens % block_tokens == 0:
        # The prompt's last block ends with a token that the answer changes: the chain stops there.
        assert got == testing.block_chain(testing.tokens_of_text(prompt), block_tokens)
    else:
        assert got == chain[: len(text) // 4 // block_tokens]
