"""Masked language models for tests: random weights of several architectures, with the tokenizer of ``tiny_encoder``."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from transformers import PreTrainedTokenizerFast

from tests.tiny_encoder import word_piece

ARCHITECTURES = ("Bert", "Roberta", "DistilBert", "Electra", "ModernBert", "Longformer")


def make_masked_lm(folder: str, architecture: str = "Bert", positions: int = 16, seed: int = 0) -> str:
    """Write config, random weights and tokenizer into ``folder``, as Hugging Face saves them; return ``folder``."""
    tokenizer = word_piece()
    padding = int(architecture in ("Roberta", "Longformer"))  # their positions begin behind that of padding
    sizes: dict[str, Any] = {
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": positions + padding,
        "pad_token_id": 0,
    }
    if architecture == "DistilBert":
        sizes |= {"dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 2}
    if architecture == "ModernBert":
        sizes |= {"bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3, "local_attention": 8}
    if architecture == "Longformer":
        sizes |= {"attention_window": 8}
    config = getattr(transformers, f"{architecture}Config")(**sizes)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = getattr(transformers, f"{architecture}ForMaskedLM")(config)
        for parameter in model.parameters():
            parameter.data.normal_(std=0.2)  # 0.02 finds every token equally likely
    model.save_pretrained(folder)
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "cls", "sep", "pad", "mask")}
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=positions, **special)
    wrapped.save_pretrained(folder)
    return folder
