"""Makes a Qwen2 model with random weights and a tokenizer for it: make_tiny_model.py DIRECTORY.

Engines serve it in tests. Its responses mean nothing, but the same prompt has the same response, and tokens,
blocks and caches behave as with any other model. It runs in the engines' environment, which has transformers.
"""

import argparse
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from transformers.utils import logging

END_OF_TEXT, START_OF_TURN, END_OF_TURN = SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CONTEXT = 8192
HEAD = 64

# One line per statement is easier to read; line breaks of the template itself are written as \n.
CHAT_TEMPLATE = r"""
{%- macro turn(role, text) -%}
{{- '<|im_start|>' ~ role ~ '\n' ~ text ~ '<|im_end|>\n' -}}
{%- endmacro -%}
{%- if tools -%}
{{- turn('system', 'Functions: ' ~ (tools | tojson)) -}}
{%- endif -%}
{%- macro words(content) -%}
{%- if content is string -%}
{{- content -}}
{%- elif content -%}
{{- content | selectattr('text', 'defined') | map(attribute='text') | join -}}
{%- endif -%}
{%- endmacro -%}
{%- macro calls(message) -%}
{%- for call in message.tool_calls or [] -%}
{{- '<tool_call>' ~ (call.function | tojson) ~ '</tool_call>' -}}
{%- endfor -%}
{%- endmacro -%}
{%- for message in messages -%}
{%- set thought = '<think>' ~ message.reasoning ~ '</think>' if message.reasoning else '' -%}
{{- turn(message.role, thought ~ words(message.content) ~ calls(message)) -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\n' -}}
{%- endif -%}
"""


def texts() -> Iterator[str]:
    """English and Python to learn frequent pieces of words from; of one version of vLLM always the same."""
    package = importlib.util.find_spec("vllm")
    assert package is not None
    assert package.submodule_search_locations is not None
    for path in sorted(Path(package.submodule_search_locations[0]).glob("*.py")):
        yield path.read_text()


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer, so that any text has tokens and can be had back from them."""
    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=4096, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    pieces.train_from_iterator(texts(), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=pieces,
        eos_token=END_OF_TURN,
        pad_token=END_OF_TEXT,
        model_max_length=CONTEXT,
        chat_template=CHAT_TEMPLATE,
    )


def make_model(tokenizer: PreTrainedTokenizerFast, layers: int, hidden: int) -> Qwen2ForCausalLM:
    """Weights drawn with a fixed seed: 4 layers of 256 have 4.5 million, 8 of 1024 have 84 million."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // HEAD,
        num_key_value_heads=hidden // HEAD // 2,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        torch_dtype="bfloat16",
    )
    return Qwen2ForCausalLM(config).to(torch.bfloat16)


def main() -> None:
    """Writes the model's directory."""
    parser = argparse.ArgumentParser(description="Make a tiny model with random weights.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256, help=f"a multiple of {2 * HEAD}")
    given = parser.parse_args()
    if given.layers < 1 or given.hidden < 2 * HEAD or given.hidden % (2 * HEAD):
        parser.error(f"--layers is at least 1 and --hidden a multiple of {2 * HEAD}")
    logging.disable_progress_bar()
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(given.directory)
    make_model(tokenizer, given.layers, given.hidden).save_pretrained(given.directory)


if __name__ == "__main__":
    main()
