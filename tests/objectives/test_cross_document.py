"""The cross-document objective: exact chances, what is never masked, the published rule of global attention."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from corpora.errors import FarspanError
from corpora.keyed import id_keys, make_key
from objectives.api.examples import IGNORED
from objectives.api.masks import IN_SOURCE, IN_TARGET, REPLACED, VISIBLE
from objectives.api.protocol import CorpusFacts, Tools, equip, load_objective
from objectives.cross_document import CrossDocument
from tests.factories import OWNED, VOCAB, make_sequences
from tests.objectives.handmade import real_rows
from tests.toy_tools import TOOLS

KEY = make_key(0, "test")
FACTS = CorpusFacts(VOCAB, OWNED, 4096, 4000, 8, room_per_sequence=2, room_per_document=2)
MASKED, RANDOM, KEPT = IN_SOURCE | IN_TARGET, REPLACED | IN_TARGET, VISIBLE | IN_TARGET
TEXT_IDS = [number for number in range(VOCAB) if number not in OWNED.values()]
LIKELY = 1e-4  # chance that a test of right code, run with another seed, would fail


def made(preset: str | None = None, **options) -> Any:
    return equip(load_objective("cross_document", preset, options), TOOLS)


def small_vocabulary(size: int, owned: dict[str, int]) -> Tools:
    return Tools(SimpleNamespace(vocab_size=size, owned_tokens=owned))


@pytest.mark.parametrize(
    ("probability", "shares"), [(0.15, (0.8, 0.1, 0.1)), (0.3, (0.5, 0.5, 0)), (1.0, (0, 0.2, 0.8))]
)
def test_every_token_is_chosen_with_its_probability(probability, shares):
    rows, length = 400, 500
    masks = made(mlm_probability=probability, treatments=shares).mask(make_sequences([length] * rows), KEY)
    total = rows * length
    chosen = len(masks.span_starts.values)
    assert stats.binomtest(chosen, total, probability).pvalue > LIKELY
    if probability < 1:
        # Rows are binomial, so their spread is too: neither a fixed number a row nor clumps.
        deviations = masks.span_starts.lengths - length * probability
        dispersion = (deviations**2).sum() / (length * probability * (1 - probability))
        assert LIKELY < stats.chi2.cdf(dispersion, rows) < 1 - LIKELY
        # No place is likelier than another.
        assert stats.chisquare(np.bincount(masks.span_starts.values, minlength=length)).pvalue > LIKELY
    frequency = Counter(masks.span_flags.values.tolist())
    for flags, share in zip((MASKED, RANDOM, KEPT), shares, strict=True):
        assert stats.binomtest(frequency[flags], chosen, share).pvalue > LIKELY if share else frequency[flags] == 0
    assert sum(frequency[flags] for flags in (MASKED, RANDOM, KEPT)) == chosen
    assert (masks.span_lengths.values == 1).all()


def test_random_tokens_are_any_text_tokens_with_equal_chances():
    """The published code draws from all ids, special ones included."""
    owned = {"<pad>": 0, "<eos>": 5, "<mask>": 9, "<doc-s>": 39}
    objective = CrossDocument(1.0, (0, 1, 0)).with_tools(small_vocabulary(40, owned))
    masks = objective.mask(make_sequences([500] * 100, vocab=40), KEY)
    seen = Counter(masks.replacements.values.tolist())
    assert set(seen) == set(range(40)) - set(owned.values())
    assert stats.chisquare(list(seen.values())).pvalue > LIKELY
    assert np.array_equal(masks.replacements.lengths, masks.span_starts.lengths)


def plainly(batch, row, objective, special, shares):
    """Source, labels and global positions of a row, token by token, with numpy's generators."""
    layout, identity = objective.layout, [batch.sequence_id(row)]
    numbers = np.random.Generator(np.random.Philox(key=id_keys(KEY, identity)[0]))
    others = np.random.Philox(key=id_keys(KEY + b"replacements", identity)[0])
    source, labels = [special["<bos>"]] if layout.begin else [], [IGNORED] if layout.begin else []
    borders = [*batch.document_starts[row].tolist(), len(batch.tokens[row])]
    for start, stop in pairwise(borders):
        source, labels = [*source, special["<doc-s>"]], [*labels, IGNORED]
        for token in batch.tokens[row][start:stop].tolist():
            draw = int(numbers.integers(2**32, dtype=np.uint32)) / 2**32 / 0.15
            if draw < shares[0]:
                source.append(special["<mask>"])
            elif draw < shares[0] + shares[1]:
                source.append(TEXT_IDS[int(others.random_raw()) % len(TEXT_IDS)])
            else:
                source.append(token)
            labels.append(token if draw < 1 else IGNORED)
        source, labels = [*source, special["</doc-s>"]], [*labels, IGNORED]
    source += [special["<eos>"]] if layout.end else []
    labels += [IGNORED] if layout.end else []
    asked = sum(label != IGNORED for label in labels)
    prefix = asked if objective.global_attention == "masked_and_prefix" else 0
    return source, labels, [place < prefix or label != IGNORED for place, label in enumerate(labels)]


def thousand_rows():
    return make_sequences(np.random.default_rng(1).integers(0, 80, 1000), 4)


@pytest.mark.parametrize("preset", ["paper", "code"])
@pytest.mark.parametrize("rows", [thousand_rows, lambda: real_rows()[0]], ids=["random", "real"])
def test_rows_equal_a_plain_implementation(preset, rows):
    batch, objective = rows(), made(preset)
    special = objective.validate(FACTS)
    examples = objective.render(batch, objective.mask(batch, KEY), special)
    for row in range(len(batch)):
        source, labels, marked = plainly(batch, row, objective, special, (0.8, 0.1, 0.1))
        assert examples.source_lengths[row] == len(source)
        assert examples.source_ids[row, : len(source)].tolist() == source
        assert examples.labels[row, : len(source)].tolist() == labels
        assert examples.global_positions[row, : len(source)].tolist() == marked


def test_a_row_by_hand():
    batch = make_sequences([5], [[0, 3]])
    objective = CrossDocument(1.0, (1, 0, 0))  # needs no tokenizer
    special = objective.validate(FACTS)
    masks = objective.mask(batch, KEY)
    assert masks.replacements is None
    assert (masks.source_lengths.tolist(), masks.target_lengths.tolist()) == ([11], [0])
    examples = objective.render(batch, masks, special)
    bos, eos, opened, closed, mask = (special[name] for name in ("<bos>", "<eos>", "<doc-s>", "</doc-s>", "<mask>"))
    assert examples.source_ids.tolist() == [[bos, opened, mask, mask, mask, closed, opened, mask, mask, closed, eos]]
    a, b, c, d, e = batch.tokens[0].tolist()
    no = IGNORED
    assert examples.labels.tolist() == [[no, no, a, b, c, no, no, d, e, no, no]]
    assert examples.target_ids.shape == (1, 0)


def test_other_documents_in_a_row_move_no_mask():
    """A row's draws follow its id and length; where its documents begin is shown, not drawn."""
    one, many = make_sequences([400]), make_sequences([400], [[0, 100, 250]])
    masks = [made().mask(batch, KEY) for batch in (one, replace(many, sequence_ids=one.sequence_ids))]
    assert masks[0].span_starts.values.tolist() == masks[1].span_starts.values.tolist()
    assert masks[1].source_lengths[0] - masks[0].source_lengths[0] == 4


def test_a_missing_tokenizer_says_how_to_give_it():
    with pytest.raises(FarspanError, match=r"objective.with_tools\(Tools\(tokenizer\)\), or treatments without random"):
        CrossDocument().mask(make_sequences([50]), KEY)


def test_a_tokenizer_of_another_vocabulary_is_refused():
    objective = CrossDocument().with_tools(small_vocabulary(40, {}))
    with pytest.raises(FarspanError, match="the tokenizer has 40 ids, the corpus's has 32000"):
        objective.validate(FACTS)
