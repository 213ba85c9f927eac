"""The family of a model, and models that no family of Hugging Face can hold."""

from dataclasses import replace
from itertools import chain

import pytest

from corpora.errors import FarspanError
from tests.trainer.conversion.models import tiny_config, tiny_model
from trainer.conversion.families import bart, bert, longformer, pegasus, roberta, t5
from trainer.conversion.family import FAMILIES, family_of
from trainer.conversion.hugging_face import write_hugging_face
from trainer.model.config import EncoderConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.patterns.block import Block
from trainer.model.positions import Learned
from trainer.recipe import load_recipe


def test_each_module_is_a_family_with_types_and_patterns_of_its_own():
    assert {bart, bert, longformer, pegasus, roberta, t5} <= set(FAMILIES)
    for family in FAMILIES:
        wanted = ["MODEL_TYPES", "IGNORED", "PATTERNS", "read_config", "name_map"]
        assert not {*wanted, *(["write_config"] if family.PATTERNS else [])} - set(vars(family))
        assert family.MODEL_TYPES
    for kind in ("MODEL_TYPES", "PATTERNS"):
        names = list(chain.from_iterable(getattr(family, kind) for family in FAMILIES))
        assert len(names) == len(set(names))
    assert all(family_of(kind) is family for family in FAMILIES for kind in family.MODEL_TYPES)


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


@pytest.mark.parametrize("option", [{"global_cross_attention": True}, {"cross_attention": (0,)}])
def test_decoders_that_pegasus_x_of_hugging_face_lacks_are_refused(tmp_path, option):
    config = load_recipe("tiny_pegasus_x").model
    config = replace(config, decoder=replace(config.decoder, **option))
    (field,) = option
    with pytest.raises(FarspanError, match=f"model.decoder.{field}: farspan .*, Hugging Face"):
        write_hugging_face(tiny_model(config), tmp_path / "out")


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
