"""The principal_sentences objective: golden choices, treatments, odd texts, budgets, options, published defects."""

import hashlib
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from corpora.errors import FarspanError
from corpora.keyed import make_key
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged
from corpora.tokenizers.training import train_byte_level_bpe
from objectives.api.masks import IN_SOURCE, IN_TARGET, REPLACED, VISIBLE
from objectives.api.protocol import CorpusFacts, Tools, equip, load_objective, mask_key
from objectives.principal_sentences import ENGLISH_STOPWORDS, PrincipalSentences
from tests.factories import OWNED, VOCAB, make_sequences, sequence_batches
from tests.objectives.handmade import Characters, rows
from tests.toy_tools import TOOLS

KEY = make_key(0, "test")
HIDDEN, INTACT, OTHER, GONE = IN_SOURCE | IN_TARGET, VISIBLE | IN_TARGET, REPLACED | IN_TARGET, IN_TARGET
PRESETS = tuple(PrincipalSentences.presets)


def chosen(batch: SequenceBatch, **options: Any) -> list[list[str]]:
    """The chosen sentences of each row in order of choice."""
    masks = equip(PrincipalSentences(**options), Tools(Characters())).mask(batch, KEY)
    found = []
    for row in range(len(batch)):
        text = "".join(map(chr, batch.tokens[row]))
        spans = zip(masks.span_ranks[row], masks.span_starts[row], masks.span_lengths[row], strict=True)
        found.append([text[start : start + length] for _, start, length in sorted(spans)])
    return found


def facts(tokens: int = 1000, documents: int = 3) -> CorpusFacts:
    return CorpusFacts(VOCAB, OWNED, tokens + documents + 1, tokens, documents)


CATS = ["The cat sat. ", "The cat ran! ", "Dogs bark. ", "A cat and dogs ran."]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"ratio": 0.25}, [1]),
        ({"ratio": 0.25, "ties": "later"}, [3]),
        ({"ratio": 1}, [1, 3, 0, 2]),
        ({"strategy": "lead", "ratio": 0.5}, [0, 1]),
        # two of four share 2, 4 or 2 words with the others, and all have 13: 4/13, 8/13, 4/13
        ({"strategy": "continuous", "ratio": 0.5}, [1, 2]),
        # the cat ran, with dogs bark 8/13, with a cat and dogs ran 6/13; that first, with the cat sat 8/13
        ({"strategy": "seq", "ratio": 0.5}, [1, 2]),
        ({"strategy": "seq", "ratio": 0.5, "ties": "later"}, [3, 0]),
        ({"ratio": 0.25, "stopwords": ["the", "a", "and"]}, [3]),
        ({"ratio": 0.3, "rounding": "up"}, [1, 3]),
        ({"ratio": 0.49}, [1]),
    ],
)
def test_choices_by_hand(options, expected):
    assert chosen(rows(CATS), **options) == [[CATS[i] for i in expected]]


def test_a_document_is_scored_for_itself_and_a_sequence_as_a_whole():
    parts = [["One two. ", "Three."], ["Two three. ", "Two. "]]
    assert chosen(rows(parts), ratio=0.25) == [["Two three. ", "One two. "]]
    assert chosen(rows(parts), ratio=0.25, scope="sequence") == [["Two three. "]]


def test_scripts_without_ascii_letters_score_by_unicode_words():
    texts = (
        ["שלום עולם. ", "יום טוב. ", "עולם טוב. "],
        ["猫在跑。", "你好。", "猫在叫。"],
        ["นก บิน ", "ปลา ", "นก กิน "],
    )
    for words, best in (("rouge", [0, 0, 0]), ("unicode", [2, 0, 0])):
        masks = equip(PrincipalSentences(words=words), Tools(Characters())).mask(rows(*texts), KEY)
        assert (masks.span_scores.values > 0).all() == (words == "unicode")
        assert chosen(rows(*texts), words=words) == [[text[i]] for text, i in zip(texts, best, strict=True)]


def test_a_character_or_word_that_tokens_cut_is_read_once():
    """Bytes of a character in two sentences; nothing is read twice, and tokens that decode to nothing may be hidden."""
    tokenizer = train_byte_level_bpe(["猫 " * 50], 260)
    ids = tokenizer.encode(["cat 猫 cat 猫 cat"])[0]
    batch = make_sequences([len(ids)], 1)
    every = np.arange(len(ids))
    batch = replace(
        batch, tokens=Ragged.from_rows([ids], np.uint16), sentence_starts=Ragged.from_rows([every], np.int32)
    )
    objective = equip(PrincipalSentences(ratio=1), Tools(tokenizer))
    masks = objective.mask(batch, KEY)
    assert masks.span_starts[0].tolist() == every.tolist()
    special = objective.validate(CorpusFacts(tokenizer.vocab_size, OWNED, 100, 50, 1))
    again = objective.reconstruct(objective.render(batch, masks, special), masks, special)
    assert np.array_equal(again[0], ids)


def test_treatments_have_their_chances_and_sentences_stand_in_with_equal_ones():
    batch = make_sequences([60] * 1500, mean_sentence=6)
    masks = equip(PrincipalSentences(ratio=0.5, treatments=[0.5, 0.2, 0.2, 0.1]), TOOLS).mask(batch, KEY)
    found = Counter(masks.span_flags.values.tolist())
    counts = [found[flags] for flags in (HIDDEN, OTHER, INTACT, GONE)]
    assert stats.chisquare(counts, sum(counts) * np.array([0.5, 0.2, 0.2, 0.1])).pvalue > 0.01
    places = Counter()
    for row in range(len(batch)):
        text, starts = batch.tokens[row], batch.sentence_starts[row]
        replaced = masks.span_flags[row] == OTHER
        pieces = np.split(masks.replacements[row], np.cumsum(masks.span_lengths[row][replaced])[:-1])
        if len(starts) == 10 and replaced.any():
            places.update(starts.tolist().index(text.tolist().index(piece[0])) for piece in pieces)
    assert stats.chisquare([places[i] for i in range(10)]).pvalue > 0.01


def test_a_drawn_ratio_is_uniform_and_noise_differs_from_text_to_text():
    """The published generator is seeded alike in every call; then texts alike would be masked alike."""
    sentences = 200
    batch = make_sequences([sentences] * 800, mean_sentence=1)
    masks = equip(load_objective("principal_sentences", "longt5_code"), TOOLS).mask(batch, KEY)
    picks = masks.span_starts.lengths
    # floor(200 * u), u uniform in [.066, .2): 13.2 to 40
    assert (picks.min(), picks.max()) == (13, 39)
    assert stats.chisquare(np.bincount(picks)[14:40]).pvalue > 0.01
    same = replace(batch, tokens=Ragged(np.tile(batch.tokens[0], 800), batch.tokens.offsets))
    masks = equip(PrincipalSentences(strategy="dynamic", noise=0.2, ratio=0.1), Tools(FewWords())).mask(same, KEY)
    assert len({tuple(masks.span_starts[row]) for row in range(800)}) > 700


class FewWords(Any):
    """Ten words, so that sentences have scores to put noise in."""

    def decode_with_offsets(self, ids):
        return "".join(f" {number % 10}" for number in ids), 2 * np.arange(len(ids))


def test_hybrid_is_random_lead_or_ind_with_equal_chances():
    batch = make_sequences([40] * 1500, mean_sentence=2)
    tools = Tools(FewWords())
    hybrid, lead, ind = (
        equip(PrincipalSentences(strategy=name), tools).mask(batch, KEY) for name in ("hybrid", "lead", "ind")
    )

    def alike(other):
        return [np.array_equal(hybrid.span_starts[row], other.span_starts[row]) for row in range(1500)]

    counts = np.array([sum(alike(lead)), sum(alike(ind)), 1500 - sum(np.array(alike(lead)) | alike(ind))])
    assert stats.chisquare(counts).pvalue > 0.001  # a random choice is now and then one of the others


@given(
    batch=sequence_batches(min_rows=1, max_documents=5),
    preset=st.sampled_from(PRESETS),
    longer=st.one_of(st.none(), st.integers(3, 90)),
    shorter=st.integers(3, 60),
    when_full=st.sampled_from(["skip", "stop"]),
)
def test_a_shorter_target_takes_from_stored_masks_what_it_would_have_chosen(batch, preset, longer, shorter, when_full):
    options = {"treatments": [0.4, 0.3, 0.2, 0.1], "when_full": when_full}
    made: list[Any] = [
        equip(load_objective("principal_sentences", preset, {**options, "target_length": length}), TOOLS)
        for length in (longer, shorter)
    ]
    assert mask_key(0, made[0]) == mask_key(0, made[1])
    stored, asked = (objective.mask(batch, KEY) for objective in made)
    selected = made[1].select(batch, stored)
    assert (selected.target_lengths <= min(shorter, longer or shorter)).all()
    if longer is None or (longer >= shorter and when_full == "stop"):
        assert selected.to_arrow().equals(asked.to_arrow())
    if longer is not None and longer <= shorter:
        assert selected.to_arrow().equals(stored.to_arrow())


def test_after_skip_a_shorter_target_may_find_less_than_it_would_have_chosen():
    """The one case in which stored masks are not enough: what did not fit is not stored."""
    batch = rows(["a a a a a b. ", "a a a b.", "b a."])
    made = [equip(PrincipalSentences(ratio=0.7, target_length=length), Tools(Characters())) for length in (15, 10)]
    stored, asked = (objective.mask(batch, KEY) for objective in made)
    assert (stored.span_lengths[0].tolist(), asked.span_lengths[0].tolist()) == ([13], [8])
    assert made[1].select(batch, stored).span_lengths[0].tolist() == [9]


def test_text_after_the_last_chosen_sentence_stays_and_the_first_token_counts():
    """BART-LS drops the one and skips the other."""
    batch = rows(["ab. ", "ab. ", "xyz. ", "uvw."])
    objective = equip(load_objective("principal_sentences", "bart_ls"), Tools(Characters()))
    masks = objective.mask(batch, KEY)
    assert (masks.span_starts[0].tolist(), masks.span_lengths[0].tolist()) == ([0], [4])
    source = objective.render(batch, masks, objective.validate(facts())).source_ids[0]
    assert "".join(chr(i) for i in source if 31 < i < VOCAB) == "ab. xyz. uvw."


def test_a_sentence_needs_no_full_stop():
    """BART-LS looks for one token; here a sentence is the corpus's."""
    batch = rows(["xyz! ", "abc? ", "abq! ", "cc"])
    assert chosen(batch, **PrincipalSentences.presets["bart_ls"]) == [["abc? "]]


def test_text_needs_a_tokenizer_and_tokens_do_not():
    batch = make_sequences([30])
    with pytest.raises(FarspanError, match=r"equip\(objective, Tools\(tokenizer\)\), or give words=tokens"):
        PrincipalSentences().mask(batch, KEY)
    without: tuple[dict[str, Any], ...] = ({"words": "tokens"}, {"strategy": "lead"}, {"strategy": "random"})
    for options in without:
        assert len(PrincipalSentences(**options).mask(batch, KEY)) == 1


def test_english_stopwords_are_the_published_file():
    """The SHA-256 of ``pegasus/ops/testdata/english_stopwords``, which ends with a blank line."""
    published = "6ac249cd8f9de7e16799608a80a7fa6315ebdfcee7ddd5e30df08b9b75fa361d"
    assert hashlib.sha256(("\n".join(ENGLISH_STOPWORDS) + "\n\n").encode()).hexdigest() == published
