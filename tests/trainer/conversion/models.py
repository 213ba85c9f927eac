"""Small models of farspan, and Hugging Face's as an independent oracle."""

import json
import os
from typing import Any

import tokenizers
import torch

from objectives.api.special_tokens import SpecialTokens
from trainer.conversion.model_folder import Model
from trainer.conversion.names import load_state, state_shapes
from trainer.conversion.vocabulary import Vocabulary
from trainer.model.build import build_model, make_model
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import FeedForwardConfig
from trainer.model.patterns.full import Full
from trainer.model.positions import Learned

WORDS = [f"w{number}" for number in range(20)]

OWNED = {"<s>": 0, "<pad>": 1, "</s>": 2}


def tokenizer_files() -> dict[str, bytes]:
    """A tokenizer of 23 ids that owns begin, pad and end."""
    vocabulary = {**OWNED, **{word: number for number, word in enumerate(WORDS, len(OWNED))}}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(OWNED))
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    return {"tokenizer.json": tokenizer.to_str().encode(), "special_tokens_map.json": json.dumps(names).encode()}


def vocabulary(*names: str, sentinels: int = 0, fingerprint: str | None = None) -> Vocabulary:
    """The 23 ids of that tokenizer, and special tokens behind them."""
    special = SpecialTokens.append(23, {"<pad>": 1, "<bos>": 0, "<eos>": 2}, names, sentinels)
    return Vocabulary.of(special, fingerprint)


def tiny_config(
    encoder: EncoderConfig | None = None, decoder: DecoderConfig | bool = True, positions: int = 16, **options: Any
) -> ModelConfig:
    """A small model with initial weights so large that every part of it shows in the output."""
    encoder = encoder or EncoderConfig(layers=2, positions=Learned(positions), attention=Full())
    if isinstance(decoder, bool):
        decoder = DecoderConfig(layers=1, positions=Learned(positions)) if decoder else None
    sizes: dict[str, Any] = {"width": 16, "heads": HeadsConfig(count=4), "feed_forward": FeedForwardConfig(width=24)}
    return ModelConfig(**{**sizes, "encoder": encoder, "decoder": decoder, "dropout": 0.0, "init_std": 0.3, **options})


def tiny_model(config: ModelConfig | None = None, known: Vocabulary | None = None, seed: int = 0) -> Model:
    """Weights away from where training begins: no bias is 0, no norm 1."""
    config, known = config or tiny_config(), known or vocabulary("<mask>")
    state = build_model(config, known.size, seed).state_dict()
    generator = torch.Generator().manual_seed(seed)
    state = {name: x + 0.1 * torch.randn(x.shape, generator=generator) for name, x in state.items()}
    return Model(config, known, state, parent={"kind": "test"})


def loaded(model: Model):
    """The modules, in evaluation mode."""
    made = make_model(model.config, model.vocabulary.size)
    made.load_state_dict(model.state)
    return made.eval()


os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

VOCAB = 37

LEAST_ID = 3  # 0, 1 and 2 begin, pad and end a text


def disturbed(model, scale=0.1, seed=0):
    """The model for evaluation, every parameter and bias away from its first value."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += scale * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def ours(family, theirs):
    """Our model with the weights of ``theirs``, through the family's own reading."""
    config = family.read_config(theirs.config.to_dict())
    with torch.device("meta"):
        model = make_model(config, theirs.config.vocab_size)
    shapes = state_shapes(config, theirs.config.vocab_size)
    state = load_state(family.name_map(config), theirs.state_dict(), shapes, family.IGNORED)
    model.load_state_dict({name: tensor.clone() for name, tensor in state.items()}, assign=True)
    return model.requires_grad_().eval()


def text(lengths, pad=1, seed=0, high=VOCAB):
    """``(B, L)`` int64 ids below ``high`` and ``(B, L)`` bool, rows of ``lengths`` padded on the right."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(LEAST_ID, high, (len(lengths), max(lengths)), generator=generator)
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return ids.masked_fill(~real, pad), real


def assert_same_gradients(family, theirs, model):
    """Every parameter's gradient is that of its stored counterparts, joined as the weights are."""
    config = family.read_config(theirs.config.to_dict())
    stored = {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for name, parameter in theirs.named_parameters(remove_duplicate=False)
    }
    for name, tensors in family.name_map(config).items():
        number, count = tensors.part
        expected = torch.cat([stored[part].chunk(count)[number][tensors.skip_rows :] for part in tensors.names])
        found = model.get_parameter(name).grad
        found = torch.zeros_like(expected) if found is None else found
        difference = (found - expected).abs().max().item()
        assert difference <= 1e-5 * max(1.0, expected.abs().max().item()), (name, difference)


def backpropagate(*logits):
    """Compute the gradients of the same drawn weighting of each of the ``logits``."""
    weights = torch.randn(logits[0].shape, generator=torch.Generator().manual_seed(2)) / logits[0].numel() ** 0.5
    for each in logits:
        (each * weights).sum().backward()


def assert_same(family, theirs, model, expected, found):
    """Same logits and same gradients."""
    assert 0.1 < expected.std() < 30, "weights of another scale would make the comparison worth less"
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    theirs.zero_grad()
    backpropagate(expected, found)
    assert_same_gradients(family, theirs, model)


def assert_same_seq2seq(family, theirs, source_lengths, pad=1, global_positions=None):
    """Same logits and same gradients on rows of ``source_lengths``; the model of ours."""
    model = ours(family, theirs)
    (ids, real), (target, _) = text(source_lengths, pad), text([5] * len(source_lengths), seed=1)
    inputs = {} if global_positions is None else {"global_attention_mask": global_positions.long()}
    expected = theirs(input_ids=ids, attention_mask=real.long(), decoder_input_ids=target, **inputs).logits
    memory = model.encode(ids, None if real.all() else real, global_positions=global_positions)
    assert_same(family, theirs, model, expected, model.logits(model.decode(target, memory)))
    return model


def assert_same_masked_lm(family, theirs, lengths, pad=1, global_positions=None):
    """The same of a masked language model, at real positions."""
    model = ours(family, theirs)
    ids, real = text(lengths, pad)
    inputs = {} if global_positions is None else {"global_attention_mask": global_positions.long()}
    expected = theirs(input_ids=ids, attention_mask=real.long(), **inputs).logits[real]
    encoded = model.encode(ids, None if real.all() else real, global_positions=global_positions)
    assert_same(family, theirs, model, expected, model.logits(encoded)[real])
    return model
