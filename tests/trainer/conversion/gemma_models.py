"""Tiny random models of T5Gemma 2 and Gemma 3, of the shapes of the released ones."""

import torch
from transformers import (
    Gemma3Config,
    Gemma3ForCausalLM,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    T5Gemma2Config,
    T5Gemma2ForConditionalGeneration,
)

from tests.trainer.conversion.models import VOCAB
from trainer.conversion.hugging_face import split_carried
from trainer.conversion.names import load_state
from trainer.model.build import make_model

SHAPES = {  # heads, their groups and the window of each released size, and an odd window
    "270m": {"num_attention_heads": 4, "num_key_value_heads": 1, "sliding_window": 6},
    "4b": {"num_attention_heads": 8, "num_key_value_heads": 4, "sliding_window": 10},
    "odd": {"num_attention_heads": 2, "num_key_value_heads": 2, "sliding_window": 7, "query_pre_attn_scalar": 9},
}
LINEAR = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1000.0, "original_max_position_embeddings": 16}
EOI = 36


def stack(shape="270m", layers=7, full=None, **options):
    values = {
        "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": layers, "head_dim": 6,
        "query_pre_attn_scalar": 6,
        "rope_parameters": {
            "full_attention": full or LINEAR, "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}
        },
    }  # fmt: skip
    return {**values, **SHAPES[shape], **options}


def vision(layers):
    sizes = {"hidden_size": 4, "intermediate_size": 4, "num_attention_heads": 1, "image_size": 8, "patch_size": 4}
    return {"model_type": "siglip_vision_model", "num_hidden_layers": layers, "vision_use_head": False, **sizes}


def t5gemma(*args, towers=0, seed=0, **options):
    """A T5Gemma 2 with weights away from where training begins."""
    torch.manual_seed(seed)
    values = stack(*args, **options)
    encoder = {"text_config": values, "vision_config": vision(towers), "eoi_token_index": EOI, "mm_tokens_per_image": 4}
    return moved(T5Gemma2ForConditionalGeneration(T5Gemma2Config(encoder=encoder, decoder=values)))


def moved(model):
    """Every part shows in the logits, and rounding does not: no weight is near where training begins, or large."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            torch.nn.init.normal_(parameter, std=0.3 if "embed" in name else 0.1)
    return model.eval()


def ours(family, theirs, config=None):
    """Our model with the weights of ``theirs``."""
    values = family.complete(theirs.config.to_dict())
    stored, _, _ = split_carried(family, theirs.state_dict(), values)
    config = config or family.read_config({name: value for name, value in values.items() if value is not None})
    state = load_state(family.name_map(config), stored, None, family.IGNORED)
    model = make_model(config, VOCAB)
    model.load_state_dict(state)
    return model.eval()


def gemma(nested=False, shape="270m", **options):
    torch.manual_seed(0)
    values = stack(shape, **options)
    if nested:
        config = Gemma3Config(text_config=values, vision_config=vision(1), mm_tokens_per_image=4)
        return moved(Gemma3ForConditionalGeneration(config))
    return moved(Gemma3ForCausalLM(Gemma3TextConfig(**values)))


def model_config(family, theirs):
    values = family.complete(theirs.config.to_dict())
    return family.read_config({name: value for name, value in values.items() if value is not None})
