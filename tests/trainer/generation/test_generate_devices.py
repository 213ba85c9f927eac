"""Generation in bfloat16, and on a device that only claims to be there: no tensor may be made on another one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged
from tests.trainer.conversion.models import tiny_config
from tests.trainer.generation.models import IDS, model_of, ragged
from trainer.generation.cached_decoder import CachedDecoder
from trainer.generation.candidates import uniforms
from trainer.generation.config import GenerationConfig
from trainer.generation.cross_cache import CrossCache, encode_rows
from trainer.generation.generate import generate
from trainer.generation.texts import Texts
from trainer.model.build import make_model
from trainer.model.config import DecoderConfig, EncoderConfig
from trainer.model.patterns.block import Block
from trainer.model.patterns.local import Local
from trainer.model.positions import Buckets, Learned, Rotary, Sinusoidal

PROMPTS = Ragged.from_rows([[], [5, 6, 7], [4]], np.int32)


@pytest.mark.parametrize("positions", [Learned(64), Sinusoidal(), Buckets(8, 16), Rotary()], ids=str)
@pytest.mark.parametrize("sample", [True, False])
def test_every_tensor_of_a_step_is_on_the_models_device(positions, sample):
    config = replace(
        tiny_config(EncoderConfig(layers=1, positions=Buckets(8, 16), attention=Local(3))),
        decoder=DecoderConfig(layers=1, positions=positions),
    )
    meta = torch.device("meta")
    with meta:
        model = make_model(config, 24).eval()
    options = GenerationConfig(beams=1 if sample else 3, sample=sample, no_repeat_ngram=2, max_tokens=9)
    sources = ragged([9, 30, 4], prompts=PROMPTS)
    prefixes = [np.append(IDS.start, PROMPTS[row]) for row in range(3)]
    with torch.no_grad():
        cross = CrossCache(encode_rows(model, sources, IDS.pad), sources.encoder_rows, options.beams, meta)
        decoder = CachedDecoder(model, cross, prefixes, 13)
        draws = uniforms(np.arange(3, dtype=np.uint64), options) if sample else None
        texts = Texts(prefixes, options, IDS, draws, meta)
        for step in range(3):
            parents = texts.advance(decoder.step(texts.tokens, texts.row_positions, 3 + step))
            decoder.reorder(parents, 0, 3 + step)
        texts.keep(np.array([0, 2]))
        decoder.keep(np.array([0, 2]))
        logits = decoder.step(texts.tokens, texts.row_positions, 6)
    assert {logits.device, texts.best.device, texts.live.device, decoder.cache.device} == {meta}
    assert logits.shape == (2 * options.beams, 24)


@pytest.mark.parametrize("automatic", [True, False])
def test_bfloat16_gives_the_texts_of_whole_passes_in_bfloat16(automatic):
    """Scores are those of a pass over the text, up to the rounding of bfloat16."""
    config = replace(
        tiny_config(positions=64), encoder=EncoderConfig(layers=2, positions=Learned(64), attention=Block(8))
    )
    model = model_of(config)
    if not automatic:
        model = model.to(torch.bfloat16)
    sources, options = ragged([9, 30, 4], prompts=PROMPTS), GenerationConfig(beams=3, max_tokens=9, min_tokens=5)
    with torch.autocast("cpu", torch.bfloat16, enabled=automatic), torch.no_grad():
        found = generate(model, sources, options, IDS)
        encoded = model.encode(sources.source_ids, sources.source_padding_mask)
        for sample, tokens in enumerate(found.tokens):
            own = type(encoded)(encoded.states[sample : sample + 1], encoded.padding_mask[sample : sample + 1])
            ids = torch.tensor([[IDS.start, *PROMPTS[sample], *tokens]])
            targets = torch.tensor([*ids[0, 1:].tolist(), IDS.end])
            chosen = model.logits(model.decode(ids, own))[0].float().log_softmax(-1).gather(1, targets[:, None])
            score = float(chosen[len(PROMPTS[sample]) :].mean())
            assert found.scores[sample] == pytest.approx(score, abs=0.05)


def test_logits_that_are_not_finite_are_an_error():
    model = model_of()
    with torch.no_grad():
        model.tokens.weight[5, 0] = torch.nan
    with pytest.raises(FarspanError, match="sample 0 of the batch has logits that are not finite; generate in fp32"):
        generate(model, ragged([9]), GenerationConfig(max_tokens=5), IDS)
