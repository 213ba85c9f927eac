"""Presets are the published settings, every option of them, and there are no others."""

from __future__ import annotations

from typing import Any

import pytest

from objectives.api.protocol import installed, load_objective

# No published system but PRIMERA and CDLM puts anything between documents. How many sentinels there are is ours.
_SPAN = {
    "separator": None,
    "target_length": None,
    "fit": "error",
    "sentinels": None,
    "global_attention": "none",
}
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
    presets = {(name, preset) for name in OURS for preset in installed()[name].load().presets}
    assert presets == set(PUBLISHED)
