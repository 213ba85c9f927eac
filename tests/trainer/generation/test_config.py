"""Refused options."""

import pytest

from corpora.errors import FarspanError
from trainer.generation.config import GenerationConfig


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beams": 0}, "generation.beams is 0; it must be at least 1"),
        ({"max_tokens": 0}, "generation.max_tokens is 0"),
        ({"min_tokens": 9, "max_tokens": 8}, "generation.min_tokens is 9, above generation.max_tokens 8"),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram is -1"),
        ({"first_tokens": (1, 2), "max_tokens": 1}, "first_tokens are 2, above"),
        ({"length_penalty": float("inf")}, "length_penalty is inf"),
        ({"length_penalty": float("nan")}, "length_penalty is nan"),
        ({"length_penalty": 200}, "length_penalty is 200, with which the penalty of a text of 256 tokens is no float"),
        ({"length_penalty": -200.0, "score": "gnmt"}, "length_penalty is -200"),
        ({"sample": True}, "set beams to 1"),
        ({"top_k": 3}, "generation.sample is not; set it"),
        ({"beams": 1, "sample": True, "top_p": 0.0}, "top_p is 0.0"),
        ({"beams": 1, "sample": True, "temperature": 0.0}, "temperature is 0.0"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(FarspanError, match=message):
        GenerationConfig(**options)


def test_penalties():
    assert GenerationConfig(length_penalty=2.0).penalty(3) == 9
    assert GenerationConfig(score="gnmt", length_penalty=0.6).penalty(7) == pytest.approx(2**0.6)
    assert [GenerationConfig(length_penalty=0.0, score=score).penalty(5) for score in ("power", "gnmt")] == [1, 1]
