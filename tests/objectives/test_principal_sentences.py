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


def test_scores_are_stored_as_they_decided():
    masks = equip(PrincipalSentences(ratio=1), Tools(Characters())).mask(rows(CATS), KEY)
    assert masks.span_scores[0].tolist() == pytest.approx([4 / 13, 6 / 13, 2 / 13, 6 / 13])
    assert masks.span_ranks[0].tolist() == [2, 0, 3, 1]
    assert masks.span_flags[0].tolist() == [HIDDEN] * 4


def test_a_document_is_scored_for_itself_and_a_sequence_as_a_whole():
    parts = [["One two. ", "Three."], ["Two three. ", "Two. "]]
    assert chosen(rows(parts), ratio=0.25) == [["Two three. ", "One two. "]]
    assert chosen(rows(parts), ratio=0.25, scope="sequence") == [["Two three. "]]


def test_one_mask_token_for_each_sentence_and_the_bare_sentences_as_target():
    batch = rows([["Ab. ", "Ab. ", "C."], ["Ab. "]])
    objective = equip(PrincipalSentences(ratio=0.7, begin=True), Tools(Characters()))
    special = objective.validate(facts())
    examples = objective.render(batch, objective.mask(batch, KEY), special)
    names = {number: name for name, number in special.ids.items()}
    read = ["".join(names.get(i, chr(i)) for i in ids[0]) for ids in (examples.source_ids, examples.target_ids)]
    assert read == ["<bos><sent-mask><sent-mask>C.<doc-sep><sent-mask><eos>", "<bos>Ab. Ab. Ab. <eos>"]


@pytest.mark.parametrize("preset", [None, *PRESETS])
@pytest.mark.parametrize(
    "text",
    [
        [],
        ["Only one sentence."],
        ["x"],
        ["Same. "] * 9,
        ["the of and "] * 5,
        ["1 2. ", "3 4. ", "1 4."],
        ["!!! ", "... "],
        ["שלום עולם. ", "עולם אחר. "],
        ["猫在跑。", "狗在叫。", "猫叫。"],
    ],
)
def test_odd_texts_lose_nothing(preset, text):
    objective: Any = equip(load_objective("principal_sentences", preset), Tools(Characters()))
    batch = rows(text, CATS)
    special = replace(objective.validate(facts()), ids=objective.validate(CorpusFacts(2**17, OWNED, 999, 900, 1)).ids)
    masks = objective.mask(batch, KEY)
    assert len(masks.span_starts[0]) == 0 if not text else len(masks.span_starts[0]) >= 1
    assert np.isfinite(masks.span_scores.values).all()
    again = objective.reconstruct(objective.render(batch, masks, special), masks, special)
    assert all(np.array_equal(again[row], batch.tokens[row]) for row in range(2))


def test_equal_sentences_are_taken_from_the_end_that_ties_name():
    for ties, places in (("earlier", [0, 6, 12]), ("later", [36, 42, 48])):
        masks = equip(PrincipalSentences(ratio=0.34, ties=ties), Tools(Characters())).mask(rows(["Same. "] * 9), KEY)
        assert masks.span_starts[0].tolist() == places


def test_scripts_without_ascii_letters_score_by_unicode_words():
    texts = (
        ["שלום עולם. ", "יום טוב. ", "עולם טוב. "],
        ["猫在跑。", "你好。", "猫在叫。"],
        ["นก บิน ", "ปลา ", "นก กิน "],
    )
    for words, best in (("rouge", [0, 0, 0]), ("unicode", [2, 0, 0])):
        objective = equip(PrincipalSentences(words=words), Tools(Characters()))
        masks = objective.mask(rows(*texts), KEY)
        assert (masks.span_scores.values > 0).all() == (words == "unicode")
        assert chosen(rows(*texts), words=words) == [[text[i]] for text, i in zip(texts, best, strict=True)]


def test_16_384_tokens_without_a_full_stop_are_hidden_as_far_as_the_target_goes():
    batch = make_sequences([16_384])
    batch = replace(batch, sentence_starts=Ragged.from_rows([[0]], np.int32))
    for preset in PRESETS:
        masks = equip(load_objective("principal_sentences", preset, {"target_length": 512}), TOOLS).mask(batch, KEY)
        begin = preset == "bart_ls"
        assert masks.span_starts[0].tolist() == [0]
        assert masks.span_lengths[0].tolist() == [511 - begin]
        assert masks.target_lengths.tolist() == [512]


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
    objective = equip(PrincipalSentences(ratio=0.5, treatments=[0.5, 0.2, 0.2, 0.1]), TOOLS)
    masks = objective.mask(batch, KEY)
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


def test_a_stand_in_is_repeated_or_cut():
    batch = rows(["abc", "de", "fghij"])
    masks = equip(PrincipalSentences(ratio=1, treatments=[0, 1, 0, 0]), Tools(Characters())).mask(batch, KEY)
    read = "".join(map(chr, masks.replacements[0]))
    options = [{(other * 5)[:n] for other in ("abc", "de", "fghij")} for n in (3, 2, 5)]
    assert all(piece in allowed for piece, allowed in zip((read[:3], read[3:5], read[5:]), options, strict=True))


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


def test_a_full_target_leaves_the_rest_in_the_source():
    batch = rows(["a b c d e. ", "a b c. ", "a b c d e f."])
    for when_full, expected in (("skip", ["a b c d e. ", "a b c. "]), ("stop", ["a b c d e. "])):
        found = chosen(batch, ratio=1, target_length=20, when_full=when_full)
        assert found == [expected]


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


def test_a_row_needs_no_more_target_than_it_has():
    """Every chosen sentence is in the target in full: published code cuts targets, and sentences go unsupervised."""
    batch = make_sequences([4000] * 4, 3)
    objective = equip(load_objective("principal_sentences", "bart_ls", {"target_length": 100}), TOOLS)
    masks = objective.mask(batch, KEY)
    assert (masks.target_lengths <= 100).all()
    for row in range(4):
        assert masks.span_lengths[row].sum() + 2 == masks.target_lengths[row]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "rouge"}, "strategy is 'rouge'; give random, lead, ind, seq, continuous, hybrid or dynamic"),
        ({"ratio": 0}, "ratio is 0; give a number above 0"),
        ({"ratio": [0.4, 0.2]}, r"ratio is \[0.4, 0.2\]"),
        ({"ratio": [0.1, 0.2, 0.3]}, "ratio is"),
        ({"ratio": 1.1}, "ratio is 1.1"),
        ({"ratio": "all"}, "ratio is 'all'"),
        ({"rounding": "half"}, "rounding"),
        ({"noise": -1, "strategy": "dynamic"}, "noise is -1; give a number from 0"),
        ({"noise": 0.2}, "noise is 0.2; give 0, or strategy=dynamic"),
        ({"counts": "all"}, "counts"),
        ({"ngram": 0}, "ngram is 0; give a whole number from 1"),
        ({"words": "bytes"}, "words is 'bytes'; give rouge, unicode or tokens"),
        ({"stopwords": "german"}, "stopwords is 'german'; give none, english, or a list of words"),
        ({"stopwords": [1]}, "stopwords"),
        ({"stopwords": "english", "words": "tokens"}, "stopwords is 'english'; give none, or words other than tokens"),
        ({"precision": "float16"}, "precision"),
        ({"ties": "first"}, "ties"),
        ({"treatments": [1, 0, 0]}, "treatments"),
        (
            {"treatments": [0.5, 0.5, 0.5, 0]},
            "give 4 numbers that add up to 1: the chances of mask, random, intact, remove",
        ),
        ({"treatments": [1.5, -0.5, 0, 0]}, "treatments"),
        ({"scope": "row"}, "scope"),
        ({"mask_token": "[MASK]"}, "mask_token is"),
        ({"begin": 1}, "begin is 1; give true or false"),
        ({"separator": "<sep>"}, "separator"),
        ({"target_length": 1}, "target_length is 1; give a whole number from 2"),
        ({"target_length": 2, "begin": True}, "target_length is 2; give a whole number from 3"),
        ({"when_full": "cut"}, "when_full"),
        ({"global_attention": "all"}, "global_attention"),
        ({"global_attention": "separators", "separator": None}, "give bos, or separator=<doc-sep> beside it"),
        ({"global_attention": "masked", "mask_token": "<unk>"}, "give none, or mask_token=<sent-mask>"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(FarspanError, match=message):
        PrincipalSentences(**options)


def test_one_spelling_of_equal_options():
    assert PrincipalSentences(ratio=1).options == PrincipalSentences(ratio=[1.0, 1.0]).options
    words = [PrincipalSentences(stopwords=given).options["stopwords"] for given in (["b", "a", "b"], ("a", "b"))]
    assert words == [["a", "b"]] * 2


def test_presets_differ_where_paper_and_code_do():
    presets = PrincipalSentences.presets
    assert (presets["longt5_paper"]["counts"], presets["longt5_code"].get("counts", "orig")) == ("uniq", "orig")
    assert {presets[name]["stopwords"] for name in ("pegasus", "longt5_paper", "longt5_code")} == {"english"}
    assert presets["pegasus"]["treatments"] == [0.9, 0.0, 0.1, 0.0]
    assert presets["pegasus_paper"]["treatments"] == [0.8, 0.0, 0.2, 0.0]
    assert presets["pegasus"]["ratio"] == pytest.approx([0.1485, 0.45])
    assert (presets["pegasus_x"]["ratio"], presets["pegasus_x_4096"]["ratio"]) == (0.45, 0.05625)


def test_text_needs_a_tokenizer_and_tokens_do_not():
    batch = make_sequences([30])
    with pytest.raises(FarspanError, match=r"equip\(objective, Tools\(tokenizer\)\), or give words=tokens"):
        PrincipalSentences().mask(batch, KEY)
    without: tuple[dict[str, Any], ...] = ({"words": "tokens"}, {"strategy": "lead"}, {"strategy": "random"})
    for options in without:
        assert len(PrincipalSentences(**options).mask(batch, KEY)) == 1


def test_a_corpus_without_room_is_refused():
    cramped = CorpusFacts(VOCAB, OWNED, 100, 100, 2, room_per_sequence=0, room_per_document=0)
    with pytest.raises(FarspanError, match="--room-per-sequence 1 --room-per-document 1"):
        PrincipalSentences().validate(cramped)


def test_special_tokens_are_appended_also_where_the_vocabulary_spells_them():
    special = PrincipalSentences(begin=True).validate(facts())
    assert special["<sent-mask>"] >= VOCAB
    assert special["<doc-sep>"] >= VOCAB
    assert special["<bos>"] == OWNED["<bos>"]
    assert "<mask>" in PrincipalSentences(mask_token="<mask>").validate(facts()).ids


def test_english_stopwords_are_the_published_file():
    """The SHA-256 of ``pegasus/ops/testdata/english_stopwords``, which ends with a blank line."""
    published = "6ac249cd8f9de7e16799608a80a7fa6315ebdfcee7ddd5e30df08b9b75fa361d"
    assert hashlib.sha256(("\n".join(ENGLISH_STOPWORDS) + "\n\n").encode()).hexdigest() == published
