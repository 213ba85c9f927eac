"""The compiled step against the plain one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from corpora.storage.ragged import Ragged
from tests.trainer.conversion.models import tiny_config
from tests.trainer.generation.models import IDS, model_of, ragged
from trainer.generation.config import GenerationConfig
from trainer.generation.generate import generate
from trainer.model.config import DecoderConfig, EncoderConfig
from trainer.model.patterns.staggered import Staggered
from trainer.model.positions import Learned

EXTRA = replace(
    tiny_config(EncoderConfig(layers=2, positions=Learned(64), attention=Staggered(8, 3))),
    decoder=DecoderConfig(layers=2, positions=Learned(64), global_cross_attention=True),
)


@pytest.mark.slow
@pytest.mark.parametrize("model", [None, EXTRA], ids=["plain", "attends to learned tokens"])
def test_a_compiled_step_gives_the_same_texts_and_is_compiled_once_for_equal_shapes(model):
    model, config = model_of(model), GenerationConfig(beams=4, max_tokens=20, min_tokens=20, no_repeat_ngram=3)
    prompts = Ragged.from_rows([[], [5, 6]], np.int32)
    for turn in range(2):
        sources = ragged([17, 30], seed=turn, prompts=prompts)
        plain = generate(model, sources, config, IDS)
        with torch.compiler.set_stance("fail_on_recompile" if turn else "default"):
            compiled = generate(model, sources, config, IDS, compiled=True)
        assert [text.tolist() for text in compiled.tokens] == [text.tolist() for text in plain.tokens]
        np.testing.assert_allclose(compiled.scores, plain.scores, atol=1e-4)
