# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the lab's model: a tiny Qwen3.5-MoE with random weights, a tokenizer and a chat template. Needs no download.

Its text has to be the same in every engine and dtype, or comparing texts would prove nothing. So weights are drawn
until the first choice leads the second clearly at each of the tokens that a test asks for, and until small errors in
all weights change nothing.
"""

from __future__ import annotations

import json
import pathlib
import sys

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

PROMPT, TOKENS = "hello world", 16
MARGIN = 0.15  # of the logits' standard deviation over the words
NOISE = 0.004  # relative error of every weight, about that of bfloat16
FIRST_SEED, SEEDS = 800, 4000  # an earlier search found nothing below the first

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"]
VISION = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
VOCABULARY = 512
WORDS = (
    "hello world gate spark smoke fabric node ready answer light metal water stone river cloud green small quick "
    "seven eleven morning evening window garden letter number silver copper"
).split()
TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else -%}
{%- for part in message.content %}{% if part.type == 'text' %}{{ part.text }}\
{% elif 'image' in part.type %}<|vision_start|><|image_pad|><|vision_end|>{% endif %}{% endfor -%}
{%- endif %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}
"""


def make_tokenizer() -> transformers.PreTrainedTokenizerFast:
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    text = [" ".join(WORDS), *WORDS, "system user assistant"] * 8
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY - 64, initial_alphabet=alphabet, show_progress=False)
    bpe.train_from_iterator(text, trainer)
    bpe.add_special_tokens(CONTROL + VISION)
    filler = [f"<|reserved_{index}|>" for index in range(VOCABULARY - bpe.get_vocab_size())]
    bpe.add_special_tokens(filler)  # each id has a text, in every engine the same
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=VISION,
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
    )


def make_config(tokenizer: transformers.PreTrainedTokenizerFast) -> transformers.Qwen3_5MoeConfig:
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in CONTROL + VISION}
    layers, interval = 4, 4
    text = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "num_hidden_layers": layers,
        # as the real ones: linear attention, and full attention in each fourth layer
        "full_attention_interval": interval,
        "layer_types": [("linear" if (n + 1) % interval else "full") + "_attention" for n in range(layers)],
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "attn_output_gate": True,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
        "linear_conv_kernel_dim": 4,
        "mamba_ssm_dtype": "float32",
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 64,
        "max_position_embeddings": 4096,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e7,
            "partial_rotary_factor": 0.25,
            "mrope_section": [4, 2, 2],
            "mrope_interleaved": True,
        },
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": ids["<|im_end|>"],
        "pad_token_id": ids["<|endoftext|>"],
    }
    vision = {
        "depth": 1,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_heads": 2,
        "patch_size": 16,
        "temporal_patch_size": 2,
        "spatial_merge_size": 2,
        "num_position_embeddings": 64,
        "out_hidden_size": 64,
        "deepstack_visual_indexes": [],
    }
    return transformers.Qwen3_5MoeConfig(
        text_config=text,
        vision_config=vision,
        tie_word_embeddings=False,
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
    )


def draw(config: transformers.Qwen3_5MoeConfig, favoured: list[int], seed: int) -> torch.nn.Module:
    """Random weights; rows of the output matrix that stand for words weigh more, so that words come out."""
    torch.manual_seed(seed)
    model = transformers.Qwen3_5MoeForConditionalGeneration(config)
    with torch.no_grad():
        model.lm_head.weight.mul_(4)
        model.lm_head.weight[favoured] *= 4
    return model.to(torch.bfloat16).float().eval()


@torch.no_grad()
def continuation(model: torch.nn.Module, prompt: torch.Tensor, favoured: list[int], margin: float) -> list[int]:
    """Greedy tokens until the leader's margin is too small."""
    tokens: list[int] = []
    given, cache = prompt, None
    while len(tokens) < TOKENS:
        out = model(input_ids=given, past_key_values=cache, use_cache=True)
        cache, logits = out.past_key_values, out.logits[0, -1].float()
        (first, second), (token, _unused) = (part.tolist() for part in logits.topk(2))
        if token not in favoured or first - second < margin * logits[favoured].std().item():
            break
        tokens.append(token)
        given = torch.tensor([[token]])
    return tokens


def holds(model: torch.nn.Module, prompt: torch.Tensor, favoured: list[int], wanted: list[int]) -> bool:
    """Whether the same text comes out in both half precisions and with errors in the weights."""
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    try:
        for dtype in (torch.bfloat16, torch.float16):
            if continuation(model.to(dtype), prompt, favoured, MARGIN / 2) != wanted:
                return False
        model.float()
        for trial in range(4):
            torch.manual_seed(trial)
            model.load_state_dict({name: value * (1 + NOISE * torch.randn_like(value)) for name, value in kept.items()})
            if continuation(model, prompt, favoured, 0) != wanted:
                return False
        return True
    finally:
        model.float().load_state_dict(kept)


def main(folder: pathlib.Path) -> None:
    torch.set_num_threads(1)
    tokenizer = make_tokenizer()
    config = make_config(tokenizer)
    favoured = [ids[0] for word in WORDS if len(ids := tokenizer(f" {word}").input_ids) == 1]
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": PROMPT}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )["input_ids"]
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        model = draw(config, favoured, seed)
        tokens = continuation(model, prompt, favoured, MARGIN)
        if len(tokens) == TOKENS and len(set(tokens)) >= TOKENS // 2 and holds(model, prompt, favoured, tokens):
            break
    else:
        raise SystemExit(f"no seed below {FIRST_SEED + SEEDS} gives a text that leads by {MARGIN} at each token")

    model.to(torch.bfloat16)
    model.generation_config = transformers.GenerationConfig(
        eos_token_id=config.text_config.eos_token_id, pad_token_id=config.text_config.pad_token_id, do_sample=False
    )
    model.save_pretrained(folder, max_shard_size="600KB")
    tokenizer.save_pretrained(folder)
    size = {"shortest_edge": 1024, "longest_edge": 65536}
    pixels = {
        "size": size,
        "patch_size": 16,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "processor_class": "Qwen3VLProcessor",
    }
    image = {**pixels, "image_processor_type": "Qwen2VLImageProcessorFast"}
    video = {**pixels, "video_processor_type": "Qwen3VLVideoProcessor"}
    (folder / "preprocessor_config.json").write_text(json.dumps(image, indent=2))
    (folder / "video_preprocessor_config.json").write_text(json.dumps(video, indent=2))
    for path in folder.iterdir():
        path.chmod(0o644)
    parameters = sum(weight.numel() for weight in model.parameters())
    shards = len(list(folder.glob("*.safetensors")))
    print(f"model: {parameters / 1e6:.2f} million parameters in {shards} shards, seed {seed}")
    print(f"model: {TOKENS} tokens, each leading by {MARGIN} standard deviations or more: {tokenizer.decode(tokens)!r}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
