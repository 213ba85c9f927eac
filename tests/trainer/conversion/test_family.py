"""The family of a model, and models that no family of Hugging Face can hold."""

from dataclasses import replace

import pytest

from corpora.errors import FarspanError
from tests.trainer.conversion.models import tiny_config, tiny_model
from trainer.conversion.hugging_face import write_hugging_face
from trainer.model.config import EncoderConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.patterns.block import Block
from trainer.model.positions.absolute import Learned


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (EncoderConfig(layers=2, positions=Learned(16), attention=Block(8)), "attention pattern 'block'"),
        (
            EncoderConfig(layers=2, positions=Learned(16), pooling=Pooling(1, 6, 4, 3)),
            "pooled attention",
        ),
    ],
)
def test_a_model_that_hugging_face_has_no_class_for_is_refused(tmp_path, encoder, message):
    with pytest.raises(FarspanError, match=message):
        write_hugging_face(tiny_model(tiny_config(encoder)), tmp_path / "out")


def test_every_field_that_cannot_be_said_is_listed(tmp_path):
    config = tiny_config()
    config = replace(
        config, norm=replace(config.norm, placement="pre"), decoder=replace(config.decoder, positions=Learned(12))
    )
    with pytest.raises(FarspanError) as raised:
        write_hugging_face(tiny_model(config), tmp_path / "out")
    assert "model.norm.placement: farspan 'pre', Hugging Face 'post'" in str(raised.value)
    assert "model.decoder.positions.count: farspan 12, Hugging Face 16" in str(raised.value)
    assert not list(tmp_path.iterdir())
