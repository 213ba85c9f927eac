"""Keys and values of encoder rows: one copy for all texts of a row."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.trainer.conversion.models import tiny_config
from tests.trainer.generation.models import IDS, model_of, ragged
from trainer.generation.cross_cache import CrossCache, encode_rows

PLAIN = tiny_config(positions=64)


def test_the_cross_cache_does_not_grow_with_beams_or_questions():
    model = model_of(PLAIN)
    few, many = ragged([32, 20]), ragged([32, 20], rows=np.array([0, 1, 0, 0, 1, 1, 0]))
    with torch.no_grad():
        sizes = [
            sum(
                part.untyped_storage().nbytes()
                for group in encode_rows(model, sources, 1)
                for part in group.keys[0][False][:2]
            )
            for sources in (few, many)
        ]
    assert sizes[0] == sizes[1]


def test_only_rows_with_samples_are_encoded():
    groups = encode_rows(model_of(PLAIN), ragged([32, 20, 32], rows=np.array([2, 2])), IDS.pad)
    assert [group.rows.tolist() for group in groups] == [[2]]


def caches(beams=2):
    """A model, and the cache of four samples of three rows of different lengths."""
    model = model_of(PLAIN)
    sources = ragged([32, 5, 20], rows=np.array([1, 0, 2, 0]))
    groups = encode_rows(model, sources, IDS.pad)
    return model, CrossCache(groups, sources.encoder_rows, beams, torch.device("cpu")), sources


@torch.no_grad()
def test_texts_attend_to_the_row_of_their_sample():
    """Against cross-attention of each text alone, to its row without padding."""
    model, cache, sources = caches()
    (crossing,) = model.decoder.layers[0].crossings()
    x = torch.randn(8, 1, 16)
    found = cache.attend(0, crossing, x)
    for sample, row in enumerate(sources.encoder_rows):
        own = slice(2 * sample, 2 * sample + 2)
        length = int(sources.source_padding_mask[row].sum())
        states = model.encode(sources.source_ids[row : row + 1, :length]).states.expand(2, -1, -1)
        expected = crossing.attention(x[own], states)
        torch.testing.assert_close(found[own], expected, atol=1e-5, rtol=1e-5)
        several = cache.attend_alone(sample, 0, crossing, x[own].transpose(0, 1)).transpose(0, 1)
        torch.testing.assert_close(several, expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("kept", [[0, 3], [1], [2, 3], [0, 1, 2, 3]])
def test_samples_that_are_kept_attend_as_before_and_rows_without_samples_are_freed(kept):
    model, cache, sources = caches()
    (crossing,) = model.decoder.layers[0].crossings()
    x = torch.randn(4, 2, 1, 16)
    before = cache.attend(0, crossing, x.flatten(0, 1)).view(4, 2, 16)
    cache.keep(np.array(kept))
    after = cache.attend(0, crossing, x[kept].flatten(0, 1)).view(len(kept), 2, 16)
    torch.testing.assert_close(after, before[kept], atol=1e-6, rtol=0)
    rows = sorted(row for group in cache.groups for row in group.rows.tolist())
    assert rows == sorted(set(sources.encoder_rows[kept].tolist()))
    assert sum(len(group.keys[0][False].k) for group in cache.groups) == len(rows)


@torch.no_grad()
def test_texts_before_padding_rows_are_not_changed_by_them():
    """The decoder rounds the number of texts up to a multiple of 4."""
    model, cache, _ = caches(beams=1)
    (crossing,) = model.decoder.layers[0].crossings()
    x = torch.randn(4, 1, 16)
    wide = cache.attend(0, crossing, torch.cat([x, torch.full((4, 1, 16), 1e9)]))
    assert wide.shape == (8, 1, 16)
    assert torch.equal(wide[:4], cache.attend(0, crossing, x))
