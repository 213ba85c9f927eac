"""Models for tests of generation, and generation by transformers."""

import functools
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    LEDConfig,
    LEDForConditionalGeneration,
    LogitsProcessor,
    LongT5Config,
    LongT5ForConditionalGeneration,
    PegasusXConfig,
    PegasusXForConditionalGeneration,
)

from tests.trainer.conversion import gemma_models
from tests.trainer.conversion.models import disturbed, loaded, ours, tiny_config, tiny_model
from trainer.conversion.families import bart, longformer, pegasus, t5, t5gemma2
from trainer.generation.config import DecoderIds, GenerationConfig, Sources
from trainer.generation.generate import generate

IDS = DecoderIds(start=2, end=2, pad=1)


def model_of(config=None, seed=0):
    """Random weights, 24 ids."""
    return loaded(tiny_model(config or tiny_config(positions=64), seed=seed))


def ragged(lengths, seed=0, low=3, high=24, **fields):
    """Sources of the given lengths, padded on the right."""
    ids = torch.randint(low, high, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(seed))
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return Sources(source_ids=ids.masked_fill(~mask, IDS.pad), source_padding_mask=mask, **fields)


def alone(sources, sample):
    """The same sample without the others and without their padding."""
    row = int(sources.encoder_rows[sample])
    length = int(sources.source_padding_mask[row].sum())
    cut = {
        name: None if getattr(sources, name) is None else getattr(sources, name)[row : row + 1, :length]
        for name in ("source_ids", "segment_ids", "global_positions")
    }
    prompts = None if sources.prompts is None else sources.prompts.take(np.array([sample]))
    seeds = None if sources.seeds is None else sources.seeds[sample : sample + 1]
    return Sources(**cut, prompts=prompts, seeds=seeds, multiple=sources.multiple)


def greedy(model, ids, mask, *, start, end, pad, max_tokens):
    """``(B, T)`` int64 as transformers gives them: greedy texts of at most ``max_tokens``, their end, then padding.

    A text that is cut has no end there; ours has one more token, its end.
    """
    config = GenerationConfig(beams=1, max_tokens=max_tokens)
    found = generate(model, Sources(source_ids=ids, source_padding_mask=mask), config, DecoderIds(start, end, pad))
    rows = [torch.tensor([*tokens, end][:max_tokens]) for tokens in found.tokens]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad)


@functools.cache
def rows_are_independent() -> bool:
    """True if matrix products here compute a row alike whatever the number of rows, if that is a multiple of 4."""
    generator = torch.Generator().manual_seed(0)
    for width in (16, 256, 768):
        x, weight = (torch.randn(rows, width, generator=generator) for rows in (96, 300))
        products = [torch.cat([F.linear(part, weight) for part in x.split(rows)]) for rows in (4, 8, 12, 32, 96)]
        if not all(torch.equal(product, products[0]) for product in products):
            return False
    return True


def assert_same(found, expected):
    """Equal scores, bit for bit on one thread of processors whose matrix products allow it."""
    if torch.get_num_threads() == 1 and rows_are_independent():
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, atol=1e-4)


VOCAB, POSITIONS = 37, 48

WIDTHS: dict[str, Any] = {
    "vocab_size": VOCAB, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": POSITIONS,
    "init_std": 0.2, "dropout": 0.0, "attention_dropout": 0.0,
}  # fmt: skip

T5_WIDTHS: dict[str, Any] = {
    "vocab_size": VOCAB, "d_model": 16, "d_kv": 6, "num_heads": 3, "d_ff": 24, "num_layers": 2,
    "num_decoder_layers": 2, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12,
    "dropout_rate": 0.0, "decoder_start_token_id": 0, "encoder_attention_type": "transient-global",
    "local_radius": 6, "global_block_size": 4, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
}  # fmt: skip

FAMILIES = ("bart", "led", "longt5", "pegasus_x", "t5gemma2")

EARLY = {"first": True, "exact": "never", "estimate": False}


def _led():
    own = {"max_encoder_position_embeddings": POSITIONS, "max_decoder_position_embeddings": POSITIONS}
    widths = {name: value for name, value in WIDTHS.items() if name != "max_position_embeddings"}
    return LEDForConditionalGeneration(LEDConfig(**{**widths, **own}, attention_window=8))


def _longt5():
    model = LongT5ForConditionalGeneration(LongT5Config(**T5_WIDTHS))
    with torch.no_grad():  # unscaled scores of its first weights would be one-hot
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(0.5)
    return model


@functools.cache
def models(name: str, seed: int):
    """The model of transformers, ours with its weights, and the ids of both."""
    torch.manual_seed(seed)
    if name == "t5gemma2":
        theirs: Any = gemma_models.t5gemma("270m", seed=seed)
        theirs.config.decoder_start_token_id = theirs.generation_config.decoder_start_token_id = 2
        return with_end(theirs, gemma_models.ours(t5gemma2, theirs), seed)
    family: ModuleType
    if name == "bart":
        theirs, family = BartForConditionalGeneration(BartConfig(**WIDTHS)), bart
    elif name == "led":
        theirs, family = _led(), longformer
    elif name == "longt5":
        theirs, family = _longt5(), t5
    else:
        options = {"block_size": 8, "num_global_tokens": 3, "activation_function": "relu", "scale_embedding": True}
        theirs, family = PegasusXForConditionalGeneration(PegasusXConfig(**{**WIDTHS, **options})), pegasus
    theirs = disturbed(theirs, seed=seed)
    return with_end(theirs, ours(family, theirs), seed)


def with_end(theirs, model, seed):
    """The two models with a likely end of texts, and their ids."""
    settings = theirs.generation_config
    settings.forced_eos_token_id = settings.forced_bos_token_id = None
    settings.eos_token_id = _likely(model, seed)
    ids = DecoderIds(theirs.config.decoder_start_token_id, settings.eos_token_id, theirs.config.pad_token_id)
    return theirs, model, ids


def _likely(model, seed: int) -> int:
    """One of the three most probable ids that mean nothing: as the end, it ends many texts early."""
    source, target = (torch.randint(3, VOCAB, (8, 12)) for _ in range(2))
    with torch.no_grad():
        shares = model.logits(model.decode(target, model.encode(source))).softmax(-1)
    shares[..., :3] = 0
    return int(shares.mean((0, 1)).topk(3).indices[seed % 3])


class Forced(LogitsProcessor):
    """No padding; forced tokens and the last end with their own log-probability."""

    def __init__(self, config: GenerationConfig, ids: DecoderIds, prompt: int) -> None:
        self.config, self.ids, self.prompt = config, ids, prompt

    def __call__(self, input_ids, scores):
        step = input_ids.shape[1] - 1 - self.prompt
        scores = scores.clone()
        scores[:, self.ids.pad] = -torch.inf
        forced = dict(enumerate(self.config.first_tokens))
        forced[self.config.max_tokens] = self.ids.end
        if step in forced:
            only = torch.full_like(scores, -torch.inf)
            only[:, forced[step]] = scores[:, forced[step]]
            return only
        return scores


def their_texts(theirs, sources: Sources, config: GenerationConfig, ids: DecoderIds) -> tuple[list[list[int]], list]:
    """Tokens without start, prompt and end, and scores, by ``generate`` under the mapping of settings."""
    prompts = sources.prompts
    prompt = 0 if prompts is None else int(prompts.lengths[0])  # of equal length: theirs are not ragged
    start = torch.full((len(sources), 1), ids.start)
    if prompts is not None:
        start = torch.cat([start, torch.from_numpy(prompts.values.reshape(len(sources), -1)).long()], 1)
    extra = {}
    if sources.global_positions is not None:
        extra["global_attention_mask"] = sources.global_positions.long()
    found = theirs.generate(
        input_ids=sources.source_ids, attention_mask=sources.source_padding_mask.long(), decoder_input_ids=start,
        num_beams=config.beams, length_penalty=config.length_penalty, early_stopping=EARLY[config.finish],
        no_repeat_ngram_size=config.no_repeat_ngram, min_new_tokens=config.min_tokens,
        max_new_tokens=config.max_tokens + 1, do_sample=False, return_dict_in_generate=True, output_scores=True,
        logits_processor=[Forced(config, ids, prompt)], **extra,
    )  # fmt: skip
    rows = found.sequences[:, 1 + prompt :].tolist()
    texts = [row[: row.index(ids.end)] if ids.end in row else row for row in rows]
    scores = found.sequences_scores.tolist() if config.beams > 1 else [None] * len(texts)
    return texts, scores
