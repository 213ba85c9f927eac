"""Generation of texts: one pass of the encoder, then one decoder step per token for all samples."""

from __future__ import annotations

import numpy as np
import torch

from corpora.errors import FarspanError
from trainer.generation.cached_decoder import CachedDecoder
from trainer.generation.config import DecoderIds, Generated, GenerationConfig, Sources
from trainer.generation.cross_cache import CrossCache, encode_rows
from trainer.generation.search import Texts, uniforms
from trainer.model.seq2seq import Seq2Seq


def generate(model: Seq2Seq, sources: Sources, config: GenerationConfig, ids: DecoderIds) -> Generated:
    """Generate one text for each sample; ``model`` is in evaluation mode meanwhile.

    A sample's text does not depend on the other samples: exactly on one CPU thread in float32, otherwise up to rounding
    (docs/generation.md).
    """
    _check(model, sources, config, ids)
    if not len(sources):
        return Generated([], np.empty(0, np.float32))
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            return _generate(model, sources, config, ids)
    finally:
        model.train(training)


def _check(model: Seq2Seq, sources: Sources, config: GenerationConfig, ids: DecoderIds) -> None:
    longest = 0 if sources.prompts is None or not len(sources) else int(sources.prompts.lengths.max())
    table = getattr(model.decoder.embedded.positions, "weight", None)
    if table is not None and 1 + longest + config.max_tokens > len(table):
        raise FarspanError(
            f"generation.max_tokens is {config.max_tokens} and the longest prompt has {longest} tokens, but the "
            f"decoder has {len(table)} positions, one of them for the start; set max_tokens to at most "
            f"{len(table) - 1 - longest}"
        )
    check_first_tokens(config, ids.end, len(model.tokens.weight))
    if config.sample and sources.seeds is None:
        raise FarspanError("generation.sample is set, but the sources have no seeds; give each sample its seed")


def check_first_tokens(config: GenerationConfig, end: int, vocabulary: int) -> None:
    """Check that a text may begin with the forced tokens."""
    for token in config.first_tokens:
        if token == end or not 0 <= token < vocabulary:
            raise FarspanError(
                f"generation.first_tokens has {token}, which is "
                + ("the end of a text" if token == end else f"not among the model's {vocabulary:,} ids")
                + "; leave it out"
            )


def _generate(model: Seq2Seq, sources: Sources, config: GenerationConfig, ids: DecoderIds) -> Generated:
    device, samples = model.tokens.weight.device, len(sources)
    prefixes = [np.array([ids.start], np.int64)] * samples
    if sources.prompts is not None:
        prefixes = [np.append(ids.start, sources.prompts[i]) for i in range(samples)]
    drawn = uniforms(sources.seeds, config) if config.sample and sources.seeds is not None else None
    longest = max(map(len, prefixes))
    cross = CrossCache(encode_rows(model, sources, ids.pad), sources.encoder_rows, config.beams, device)
    decoder = CachedDecoder(model, cross, prefixes, longest + config.max_tokens)
    texts = Texts(prefixes, config, ids, drawn, device)
    tokens, scores = [np.empty(0, np.int32)] * samples, np.full(samples, -np.inf)
    every = 1 if device.type == "cpu" else 8  # reading a CUDA device's tensors waits for its queue
    shared = 0
    while len(texts):
        last = longest - 1 + texts.step
        look = texts.step % every == 0 or texts.step == config.max_tokens
        shared = texts.shared_columns() if look else shared
        parents = texts.advance(decoder.step(texts.tokens, texts.row_positions, last))
        decoder.reorder(parents, shared, last)
        done = texts.finished() if look else None
        # Removing samples copies the caches of the others, so at least half must be finished.
        if done is not None and done.sum() * 2 >= len(texts):
            for sample, text, score in texts.results(done):
                tokens[sample], scores[sample] = text, score
            left = np.flatnonzero(~done)
            texts.keep(left)
            if len(left):
                decoder.keep(left)
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        raise FarspanError(
            f"sample {bad[0]} of the batch has logits that are not finite; generate in fp32, or with another checkpoint"
        )
    return Generated(tokens, scores.astype(np.float32))
