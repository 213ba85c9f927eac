"""BART-LS's patterns against Hugging Face's BART, whose encoder is told who sees whom by an additive mask."""

from dataclasses import replace

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration

from tests.trainer.conversion.oracle import VOCAB, assert_same_gradients, disturbed, ours, text
from trainer.conversion.families import bart
from trainer.model.build import make_model
from trainer.model.patterns.block import Block
from trainer.model.patterns.block_global import BlockGlobal
from trainer.model.patterns.full import Full
from trainer.model.patterns.overlap import Overlap

LENGTHS = [[1, 1], [7, 3], [8, 5], [9, 8], [13, 1], [16, 12], [17, 9], [24, 16, 1], [29, 27], [40, 31]]


def _sees(pattern, query, key):
    """The paper's words once more, apart from those of the patterns."""
    if isinstance(pattern, Full):
        return True
    block = query // 8
    if isinstance(pattern, Overlap):
        return block * 8 - 4 <= key < block * 8 + 12
    if isinstance(pattern, BlockGlobal) and (query % 8 < 3 or key % 8 < 3):
        return True
    return block == key // 8


@pytest.fixture(scope="module")
def theirs():
    config = BartConfig(
        vocab_size=VOCAB, d_model=16, encoder_layers=2, decoder_layers=1, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=40, init_std=0.2,
        dropout=0.0, attention_dropout=0.0,
    )  # fmt: skip
    return disturbed(BartForConditionalGeneration(config))


@pytest.mark.parametrize("pattern", [Full(), Block(8), Overlap(8), BlockGlobal(8, 3)], ids=lambda p: p.pattern)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_logits_and_gradients_are_those_of_bart_under_the_dense_mask(theirs, pattern, lengths):
    full = ours(bart, theirs)
    config = bart.read_config(theirs.config.to_dict())
    model = make_model(replace(config, encoder=replace(config.encoder, attention=pattern)), VOCAB)
    model.load_state_dict(full.state_dict())
    model.eval()

    (ids, real), (target, _) = text(lengths), text([5] * len(lengths), seed=1)
    places = range(ids.shape[1])
    seen = torch.tensor([[_sees(pattern, query, key) for key in places] for query in places])
    additive = torch.zeros(len(ids), 1, *seen.shape)
    additive = additive.masked_fill(~(seen & real[:, None, :])[:, None], torch.finfo(torch.float32).min)
    encoded = theirs.model.encoder(ids, attention_mask=additive)
    expected = theirs(encoder_outputs=encoded, attention_mask=real.long(), decoder_input_ids=target).logits
    found = model.logits(model.decode(target, model.encode(ids, None if real.all() else real)))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)

    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(2)) / expected.numel() ** 0.5
    theirs.zero_grad()
    (expected * weights).sum().backward()
    (found * weights).sum().backward()
    assert_same_gradients(bart, theirs, model)
