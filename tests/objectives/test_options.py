"""Options of every objective: wrong values are refused with the cure, and equal ones have one spelling."""

import math
from typing import Any

import pytest

from corpora.errors import FarspanError
from objectives.api.protocol import load_objective

LAYOUT: list[dict[str, Any]] = [
    {"begin": 1},
    {"separator": "<sep>"},
    {"global_attention": "all"},
    {"global_attention": "separators", "separator": None},
]
# the first option of each table is wrong
WRONG: dict[str, list[dict[str, Any]]] = {
    "span": [
        *LAYOUT,
        *({"density": value} for value in (0, 1, "0.1", True, math.nan, [], [100, 0.5], [[0, 0.5]], [[10.5, 0.5]])),
        *({"density": value} for value in ([[100, 1]], [[100, 0.5], [100, 0.1]], [[200, 0.5], [100, 0.1]])),
        *({"mean_span_lengths": value} for value in ([], 0.5, [3, "4"], None)),
        *({"target_length": value} for value in (2, 100.0, True)),
        {"target_length": 3, "begin": True},
        {"placement": "random"},
        {"sentinel_order": "up"},
        {"fit": "crop"},
        {"sentinels": 0},
    ],
    "principal_sentences": [
        *LAYOUT,
        *({"ratio": value} for value in (0, 1.1, "all", [0.4, 0.2], [0.1, 0.2, 0.3])),
        *({"treatments": value} for value in ([1, 0, 0], [0.5, 0.5, 0.5, 0], [1.5, -0.5, 0, 0])),
        *({"stopwords": value} for value in ("german", [1])),
        {"stopwords": "english", "words": "tokens"},
        {"noise": -1, "strategy": "dynamic"},
        {"noise": 0.2},
        {"target_length": 1},
        {"target_length": 2, "begin": True},
        {"ngram": 0},
        {"global_attention": "masked", "mask_token": "<unk>"},
        *({option: "other"} for option in ("strategy", "rounding", "counts", "words", "precision", "ties", "scope")),
        *({option: "other"} for option in ("mask_token", "when_full")),
    ],
    "entity_pyramid": [
        *({"ratio": value} for value in (0, 1.5)),
        *({"visible": value} for value in (-0.1, True)),
        *({"entity_labels": value} for value in ("PERSON", [])),
        {"min_words": -1},
        {"words": "tokens"},
        {"stem": 1},
        {"model": ""},
        {"target_length": 2},
        *({option: "other"} for option in ("entity_ties", "mask_token", "global_attention")),
    ],
    "model_based": [
        *LAYOUT,
        *({"density": value} for value in (0, 0.4)),  # at most candidate_density
        *({"span_share": value} for value in (0, 1.5)),
        {"candidate_density": 1},
        {"mean_span_lengths": []},
        {"aggregation": "median"},
        {"sentinel_order": "up"},
        {"sentinels": 0},
        {"target_length": 2},
    ],
    "cross_document": [
        *({"mlm_probability": value} for value in (0, 1.5, "0.15", True)),
        *({"treatments": value} for value in (0.8, [0.8, 0.2], [0.8, 0.1, 0.2], [1.1, -0.1, 0], [1, 0, None])),
        {"begin": 1},
        {"end": None},
        {"global_attention": "prefix"},
    ],
}


@pytest.mark.parametrize(("name", "options"), [(name, wrong) for name in WRONG for wrong in WRONG[name]], ids=str)
def test_a_wrong_value_is_refused_with_its_option_and_the_cure(name, options):
    option, value = next(iter(options.items()))
    with pytest.raises(FarspanError, match=f"^{name}: option {option} is .*; give ") as error:
        load_objective(name, options=options)
    assert ("null" if value is None else repr(value)) in str(error.value)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("model_based", {"density": 0.4}, "give at most candidate_density, 0.3125, or raise that"),
        ("principal_sentences", {"noise": 0.2}, "give 0, or strategy=dynamic"),
        ("principal_sentences", {"stopwords": "english", "words": "tokens"}, "give none, or words other than tokens"),
        ("principal_sentences", {"global_attention": "masked", "mask_token": "<unk>"}, "or mask_token=<sent-mask>"),
        ("span", {"global_attention": "separators", "separator": None}, "give bos, or separator=<doc-sep> beside it"),
    ],
)
def test_options_that_exclude_each_other_name_both(name, options, message):
    with pytest.raises(FarspanError, match=message):
        load_objective(name, options=options)


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("span", {"mean_span_lengths": 5}, {"mean_span_lengths": [5.0]}),
        ("span", {"mean_span_lengths": (4, 8)}, {"mean_span_lengths": [4.0, 8.0]}),
        ("span", {"density": ((100.0, 0.5), [200, 0.25])}, {"density": [[100, 0.5], [200, 0.25]]}),
        ("principal_sentences", {"ratio": 1}, {"ratio": [1.0, 1.0]}),
        ("principal_sentences", {"stopwords": ["b", "a", "b"]}, {"stopwords": ("a", "b")}),
        ("entity_pyramid", {"ratio": 1, "entity_labels": ["B", "A", "B"]}, {"ratio": 1.0, "entity_labels": ("A", "B")}),
        ("model_based", {"mean_span_lengths": 5, "begin": True}, {"mean_span_lengths": [5.0], "begin": True}),
        ("cross_document", {"treatments": [1, 0, 0]}, {"treatments": (1.0, 0.0, 0.0)}),
    ],
)
def test_equal_options_have_one_spelling_from_which_the_objective_is_made_again(name, one, other):
    made: Any = load_objective(name, options=one)
    assert made.options == load_objective(name, options=other).options
    assert load_objective(name, options=made.options) == made == load_objective(name, options=other)
