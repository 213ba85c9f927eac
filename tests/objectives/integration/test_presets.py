"""Presets are the published settings; odd texts, under every objective and preset, have a defined result."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.keyed import make_key
from objectives.api.masks import CANDIDATE, IN_TARGET
from objectives.api.protocol import OBJECTIVES, CorpusFacts, Tools, equip, load_objective
from objectives.api.special_tokens import MASK, SpecialTokens
from tests.factories import OWNED
from tests.objectives.handmade import Characters, rows
from tests.toy_tools import ToyRecognizer, ToyScorer

# No published system but PRIMERA and CDLM puts anything between documents. How many sentinels there are is ours.
_SPAN = {"separator": None, "target_length": None, "fit": "error", "sentinels": None, "global_attention": "none"}
_SENTENCES = {
    "rounding": "down",
    "counts": "orig",
    "ngram": 1,
    "words": "rouge",
    "scope": "document",
    "mask_token": "<sent-mask>",
    "begin": False,
    "separator": None,
    "when_full": "skip",
    "global_attention": "none",
}
# pegasus/params/pegasus_params.py: dynamic_rouge, 0.45 from 0.33 of it up, noise 0.20, one-word ROUGE of all words.
_PEGASUS = {
    **_SENTENCES,
    "strategy": "dynamic",
    "ratio": [0.1485, 0.45],
    "noise": 0.2,
    "stopwords": "english",
    "precision": "float32",
    "ties": "later",
    "treatments": [0.9, 0.0, 0.1, 0.0],
    "target_length": 256,
}
# longt5/preprocessors.py: the same at 0.2, targets of 910, PEGASUS's mask (id 2) over the ids of T5; the name of the
# file of stopwords is blank, and a comment says which it was.
_LONGT5 = {**_PEGASUS, "ratio": [0.066, 0.2], "target_length": 910, "mask_token": "<unk>"}
_BART_LS = {
    **_SPAN,
    "mean_span_lengths": [5.0],
    "sentinel_order": "ascending",
    "begin": True,
    "target_length": 1024,
    "fit": "reduce",
}

PUBLISHED: dict[tuple[str, str], dict[str, Any]] = {
    ("span", "t5"): {
        **_SPAN,
        "density": 0.15,
        "mean_span_lengths": [3.0],
        "sentinel_order": "descending",
        "begin": False,
    },
    ("span", "bart_ls"): {**_BART_LS, "density": 0.0625},
    ("span", "bart_ls_8k"): {**_BART_LS, "density": 0.125},
    ("span", "bart_ls_mixed"): {**_BART_LS, "density": 0.0625, "mean_span_lengths": [4.0, 8.0, 12.0]},
    ("principal_sentences", "pegasus"): _PEGASUS,
    ("principal_sentences", "pegasus_paper"): {
        **_PEGASUS,
        "strategy": "ind",
        "ratio": 0.45,
        "noise": 0.0,
        "treatments": [0.8, 0.0, 0.2, 0.0],
    },
    ("principal_sentences", "pegasus_x"): {**_PEGASUS, "ratio": 0.45},
    ("principal_sentences", "pegasus_x_4096"): {**_PEGASUS, "ratio": 0.05625},
    ("principal_sentences", "longt5_code"): _LONGT5,
    ("principal_sentences", "longt5_paper"): {**_LONGT5, "counts": "uniq"},
    ("principal_sentences", "bart_ls"): {
        **_SENTENCES,
        "strategy": "ind",
        "ratio": 0.0625,
        "rounding": "up",
        "noise": 0.0,
        "counts": "uniq",
        "words": "tokens",
        "stopwords": "none",
        "precision": "float64",
        "ties": "earlier",  # sorting in Python is stable
        "treatments": [1.0, 0.0, 0.0, 0.0],
        "scope": "sequence",
        "begin": True,
        "target_length": 1024,
        "when_full": "stop",
    },
    ("entity_pyramid", "primera"): {
        "ratio": 0.3,
        "visible": 0.5,
        "min_words": 5,
        "words": "rouge",
        "stem": True,
        "entity_ties": "later",
        "model": "en_core_web_sm",
        "entity_labels": None,
        "mask_token": "<mask>",
        "begin": True,
        "target_length": 1024,
        "global_attention": "separators",
    },
    ("model_based", "bart_ls"): {
        "density": None,
        "span_share": 0.2,
        "candidate_density": 0.3125,
        "mean_span_lengths": [4.0, 8.0, 12.0],
        "aggregation": "mean",
        "sentinel_order": "ascending",
        "begin": True,
        "separator": None,
        "target_length": 1024,
        "sentinels": None,
        "global_attention": "none",
    },
    ("cross_document", "paper"): {
        "mlm_probability": 0.15,
        "treatments": [0.8, 0.1, 0.1],
        "begin": True,
        "end": True,
        "global_attention": "masked",
    },
    ("cross_document", "code"): {
        "mlm_probability": 0.15,
        "treatments": [0.8, 0.1, 0.1],
        "begin": False,
        "end": False,
        "global_attention": "masked_and_prefix",
    },
}
OURS = ("span", "principal_sentences", "entity_pyramid", "model_based", "cross_document")


@pytest.mark.parametrize(("name", "preset"), PUBLISHED, ids="-".join)
def test_a_preset_is_what_was_published(name, preset):
    options = dict(load_objective(name, preset).options)
    published = dict(PUBLISHED[name, preset])
    assert options.pop("ratio", None) == pytest.approx(published.pop("ratio", None))  # a product of two
    assert options == published


def test_every_preset_is_checked():
    presets = {(name, preset) for name in OURS for preset in OBJECTIVES.installed()[name].load().presets}
    assert presets == set(PUBLISHED)


VOCABULARY = 1 << 16  # of characters, one id each
KEY = make_key(0, "test")
PLAIN = ["The cat w7 sat there again. ", "A dog ran by the old house. ", "The cat ran, and w7 saw it all. "]
TEXTS: dict[str, list[Any]] = {
    "empty": [],
    "one token": ["x"],
    "one sentence": ["Only one sentence stands here."],
    "the same sentence": ["Same again and again, says w7. "] * 9,
    "the same character": ["aaaaaaaaaaaaaaaaaaaaaaaa"],
    "16,384 tokens without a full stop": ["word w7 " * 2048],
    "stopwords": ["the of and in on at. ", "of the and on in it. "],
    "digits": ["12 34 56 78 90. ", "34 12 65 87 9. ", "0."],
    "marks": ["!!! ", "... ", "?"],
    "Hebrew": ["שלום עולם זה יום יפה. ", "עולם אחר הוא יום אחר. "],
    "Arabic": ["كتاب جديد على الطاولة هنا. ", "كتاب آخر على الأرض هنا. "],
    "Chinese": ["猫在跑得很快很快。", "狗在叫得很响很响。", "猫叫得也很快。"],
    "Japanese": ["東京タワーへ行くのは楽しい。", "京都へ行くのも楽しい。"],
    "an empty document": [PLAIN, [], PLAIN[:1]],
    "a cluster of one": [PLAIN],
    "a cluster of 200": [[f"{number} is w7 of them all here. "] for number in range(200)],
    "a cluster of documents of one token": [["x"]] * 50,
    "text that spells special tokens": ["<mask> and <doc-sep> are <sent-mask> text. ", "<s> and </s> are <mask> too. "],
}
PRESETS = [(name, preset) for name in OURS for preset in (None, *OBJECTIVES.installed()[name].load().presets)]
every_objective = pytest.mark.parametrize(("name", "preset"), PRESETS)


class Scorer(ToyScorer):
    special = SpecialTokens.append(VOCABULARY, OWNED, [MASK])


class OddTokenizer(Characters):
    vocab_size, fingerprint, owned_tokens = VOCABULARY, "toy", OWNED


def made(name: str, preset: str | None, **options: object) -> Any:
    return equip(load_objective(name, preset, options), Tools(OddTokenizer(), Scorer(), ToyRecognizer()))


def facts_of(batch, owned=OWNED) -> CorpusFacts:
    tokens, parts = batch.tokens.lengths, batch.document_starts.lengths
    longest, most = int(tokens.max()), int(parts.max())
    return CorpusFacts(VOCABULARY, owned, longest + 2 * most + 2, longest, most, room_per_document=2)


@every_objective
@pytest.mark.parametrize("title", TEXTS)
def test_nothing_is_lost_and_what_can_be_asked_is(name, preset, title):
    """Beside an ordinary row, whose mask does not change."""
    objective = made(name, preset)
    batch = rows(PLAIN, TEXTS[title])
    special = objective.validate(facts_of(batch))
    masks = objective.mask(batch, KEY)
    examples = objective.render(batch, masks, special)
    text = objective.reconstruct(examples, masks, special)
    assert all(np.array_equal(text[row], batch.tokens[row]) for row in range(2))
    assert masks.span_scores is None or np.isfinite(masks.span_scores.values).all()
    alone = objective.mask(batch.take([0]), KEY).to_arrow().to_pylist()
    assert masks.to_arrow().to_pylist()[:1] == alone

    longest = objective.options.get("target_length")
    assert longest is None or examples.target_lengths.max() <= longest
    asked = masks.span_lengths[1][masks.span_flags[1] & IN_TARGET > 0].sum()
    tokens = len(batch.tokens[1])
    least = 2 if name in ("span", "model_based") else 1  # there a visible token is left
    if name == "cross_document":  # each token for itself, so of few maybe none
        assert abs(asked - 0.15 * tokens) <= 1 + 6 * np.sqrt(0.15 * tokens)
    else:
        assert (asked > 0) == (tokens >= least)


@every_objective
def test_special_tokens_that_a_vocabulary_holds_are_used_and_its_pieces_are_not(name, preset):
    """A tokenizer's own ``<mask>`` keeps its id; a piece of text that is spelt like one is text."""
    held = {special: number for number, special in enumerate(("<mask>", "<doc-sep>", "<sent-mask>", "<doc-s>"), 4)}
    batch = rows(TEXTS["text that spells special tokens"], TEXTS["a cluster of 200"])
    objective = made(name, preset)
    for owned in (OWNED, {**OWNED, **held}):
        special = objective.validate(facts_of(batch, owned))
        numbers = list(special.ids.values())
        assert len(set(numbers)) == len(numbers)
        for token, number in special.ids.items():
            assert number == owned[token] if token in owned else VOCABULARY <= number < special.vocab_size
        masks = objective.mask(batch, KEY)
        text = objective.reconstruct(objective.render(batch, masks, special), masks, special)
        assert all(np.array_equal(text[row], batch.tokens[row]) for row in range(2))


SMALL = [
    ("principal_sentences", {}, 12),
    ("principal_sentences", {"strategy": "seq", "when_full": "stop"}, 12),
    ("entity_pyramid", {}, 12),
    # Whole spans, each with a sentinel: a place may be left for one more sentinel without a token.
    ("model_based", {}, 11),
    ("span", {"fit": "reduce"}, 11),
]


@pytest.mark.parametrize(("name", "options", "least"), SMALL, ids=str)
@pytest.mark.parametrize("title", ["one sentence", "16,384 tokens without a full stop", "the same sentence", "Hebrew"])
def test_a_target_smaller_than_a_sentence_is_filled(name, options, least, title):
    objective = made(name, None, **options, target_length=12)
    batch = rows(TEXTS[title])
    special = objective.validate(facts_of(batch))
    masks = objective.mask(batch, KEY)
    examples = objective.render(batch, masks, special)
    enough = len(batch.tokens[0]) > 100 or name in ("principal_sentences", "entity_pyramid")
    assert least * enough <= examples.target_lengths[0] <= 12
    assert np.array_equal(objective.reconstruct(examples, masks, special)[0], batch.tokens[0])


def test_a_target_or_sentinels_too_few_for_span_are_an_error_before_work_starts():
    facts = facts_of(rows(TEXTS["16,384 tokens without a full stop"]))
    for options in ({"target_length": 12}, {"sentinels": 3}):
        (option,) = options
        with pytest.raises(FarspanError, match=rf"span: option {option} is \d+, but .*; raise {option} to \d+"):
            made("span", None, **options).validate(facts)


@pytest.mark.parametrize("sentinels", [1, 3])
def test_sentinels_too_few_for_model_based_are_a_budget_that_it_keeps(sentinels):
    objective = made("model_based", "bart_ls", sentinels=sentinels)
    batch = rows(*(TEXTS[title] for title in TEXTS))
    special = objective.validate(facts_of(batch))
    masks = objective.mask(batch, KEY)
    hidden = [int((masks.span_flags[row] != CANDIDATE).sum()) for row in range(len(batch))]
    assert max(hidden) == len(special.sentinels) == sentinels


def test_a_corpus_without_room_names_the_objective_and_the_cure():
    tight = replace(facts_of(rows(PLAIN)), sequence_length=10, room_per_sequence=0, room_per_document=0)
    for name in OURS:
        with pytest.raises(FarspanError, match=rf"^{name}: .*; build it with --room-per-sequence \d"):
            made(name, None).validate(tight)
