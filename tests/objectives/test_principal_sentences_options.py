"""Options, presets and tools of principal_sentences."""

from __future__ import annotations

import hashlib

import pytest

from corpora.errors import FarspanError
from objectives.api.protocol import CorpusFacts, load_objective
from objectives.principal_sentences import PrincipalSentences
from objectives.sentences.presets import ENGLISH_STOPWORDS
from tests.factories import OWNED, VOCAB, make_sequences
from tests.objectives.test_principal_sentences import KEY, PRESETS, facts


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


@pytest.mark.parametrize("preset", PRESETS)
def test_options_make_the_same_objective_again(preset):
    objective = load_objective("principal_sentences", preset)
    assert load_objective("principal_sentences", options=objective.options) == objective


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
    for options in ({"words": "tokens"}, {"strategy": "lead"}, {"strategy": "random"}):
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
