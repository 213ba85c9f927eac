"""T5Gemma 2 and Gemma 3: Hugging Face's models as oracles, on sequences beyond the window."""

import json
from dataclasses import replace
from itertools import product

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, Gemma3TextConfig
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.t5gemma2.modeling_t5gemma2 import T5Gemma2RMSNorm

from corpora.errors import FarspanError
from objectives.api.special_tokens import SpecialTokens
from tests.trainer.conversion.gemma_models import EOI, LINEAR, SHAPES, YARN, gemma, model_config, ours, stack, t5gemma
from tests.trainer.conversion.models import VOCAB, backpropagate, loaded, text
from tests.trainer.toy import ToySource, toy_recipe
from trainer.conversion.adapt import differences
from trainer.conversion.convert import convert
from trainer.conversion.families import gemma3, t5gemma2
from trainer.conversion.family import family_of
from trainer.conversion.hugging_face import read_hugging_face, split_carried
from trainer.conversion.model_folder import read_model_folder
from trainer.generation.config import DecoderIds, GenerationConfig, Sources
from trainer.generation.generate import generate
from trainer.model.patterns.layered import Layered
from trainer.model.positions import Rotary
from trainer.options import Conversion
from trainer.run.train import train

PLAIN = {"rope_type": "default", "rope_theta": 1000.0}


@pytest.fixture
def in_double(monkeypatch):
    """The library's norms without their rounding to float32, so that models in float64 differ by less than 1e-6."""
    for kind in (T5Gemma2RMSNorm, Gemma3RMSNorm):
        monkeypatch.setattr(kind, "forward", lambda self, x: self._norm(x) * (1 + self.weight))


def assert_same_gradients(family, theirs, model):
    """A weight that both stacks of ours have gets the sum of their gradients in theirs."""
    names = dict(theirs.named_parameters(remove_duplicate=False))
    stored = {name: torch.zeros_like(x) if x.grad is None else x.grad for name, x in names.items()}
    stored, _, _ = split_carried(family, stored, family.complete(theirs.config.to_dict()))
    expected, found = {}, {}
    for name, tensors in family.name_map(model_config(family, theirs)).items():
        gradient = model.get_parameter(name).grad
        gradient = torch.zeros_like(model.get_parameter(name)) if gradient is None else gradient
        for part, own in zip(tensors.names, gradient.chunk(len(tensors.names)), strict=True):
            expected[part] = stored[part]
            found[part] = found.get(part, 0) + own * tensors.factor
    for name, gradient in expected.items():
        difference = (found[name] - gradient).abs().max().item()
        assert difference <= 1e-5 * max(1.0, gradient.abs().max().item()), (name, difference)


def assert_same(found, expected, tolerance=1e-5):
    assert 0.1 < expected.std() < 30
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(
    ("shape", "full", "lengths", "left"),
    [
        # every shape with every scaling beyond the window, and short rows, padded on either side; the rest is slow
        pytest.param(shape, full, lengths, left, marks=[] if number % 4 == 0 or fast else pytest.mark.slow)
        for number, (shape, full) in enumerate(product(SHAPES, (PLAIN, LINEAR, YARN)))
        for lengths, left in product(([1], [3, 2], [41, 23, 7]), (False, True))
        for fast in [len(lengths) == 3 and left == bool(number % 2)]
    ],
)
def test_t5gemma2_has_the_same_logits_and_gradients(in_double, shape, full, lengths, left):
    theirs = t5gemma(shape, full=full).double()
    model = ours(t5gemma2, theirs).double()
    assert model.encoder.layers[0].attention.pattern.local
    assert not model.decoder.layers[5].attention.pattern.local
    ids, real = text(lengths, pad=0)
    if left:
        ids, real = ids.flip(1), real.flip(1)
    target, _ = text([25] * len(lengths), seed=1)
    target[:, 3] = ids[:, 0] = EOI
    real[:, 0] = True
    expected = theirs(input_ids=ids, attention_mask=real.long(), decoder_input_ids=target).logits
    found = model.logits(model.decode(target, model.encode(ids, None if real.all() else real)))
    assert_same(found, expected)
    backpropagate(expected, found)
    assert_same_gradients(t5gemma2, theirs, model)


@torch.no_grad()
@pytest.mark.parametrize("cut", [1, 5, 17, 29])
@pytest.mark.parametrize("shape", SHAPES)
def test_packed_documents_are_those_of_masks(in_double, shape, cut):
    """The library has no documents, but takes whole masks."""
    theirs = t5gemma(shape).double()
    model, window = ours(t5gemma2, theirs).double(), SHAPES[shape]["sliding_window"]
    ids, real = text([40, 31], pad=0)
    segments = (torch.arange(40) // cut).expand(2, -1).masked_fill(~real, -1)
    target, _ = text([25, 25], seed=1)
    same = (segments[:, :, None] == segments[:, None]) & real[:, None]
    distance = torch.arange(40)[:, None] - torch.arange(40)
    near = same & (distance < (window + 1) // 2) & (-distance <= window // 2)
    masks = {
        name: torch.zeros(2, 1, 40, 40).double().masked_fill(~(mask | ~real[..., None])[:, None], -torch.inf)
        for name, mask in (("full_attention", same), ("sliding_attention", near))
    }
    states = theirs.model.encoder(input_ids=ids, attention_mask=masks).last_hidden_state
    encoded = model.encode(ids, real, segments)
    assert_same(encoded.states[real], states[real])
    output = BaseModelOutput(last_hidden_state=states)
    expected = theirs(encoder_outputs=output, attention_mask=real.long(), decoder_input_ids=target).logits
    assert_same(model.logits(model.decode(target, encoded)), expected)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("options", [{}, {"cache_implementation": "static"}, {"use_cache": False}])
def test_texts_are_those_of_the_library_beyond_the_window(shape, options):
    theirs = t5gemma(shape)
    model = ours(t5gemma2, theirs)
    ids, real = text([30, 13, 21], pad=0)
    settings = {
        "max_new_tokens": 24, "min_new_tokens": 20, "do_sample": False, "no_repeat_ngram_size": 2,
        "suppress_tokens": [0], "decoder_start_token_id": 2,
    }  # fmt: skip
    written = theirs.generate(ids, attention_mask=real.long(), **settings, **options)[:, 1:]
    config = GenerationConfig(beams=1, max_tokens=24, min_tokens=20, no_repeat_ngram=2)
    ids_of = DecoderIds(start=2, end=1, pad=0)
    found = generate(model, Sources(source_ids=ids, source_padding_mask=real), config, ids_of)
    rows = [torch.tensor([*tokens, 1][:24]) for tokens in found.tokens]
    assert torch.equal(torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), written)


# Gemma 3 as an encoder-decoder


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("length", [1, 7, 33])
@pytest.mark.parametrize("shape", SHAPES)
def test_without_a_source_the_decoder_is_gemma(in_double, shape, length, nested):
    theirs = gemma(nested, shape).double()
    model = ours(gemma3, theirs).double()
    ids, target = text([19, 8], pad=0)[0], text([length, length], seed=1)[0]
    expected = theirs(input_ids=target).logits
    found = model.logits(model.decode(target, model.encode(ids, torch.zeros_like(ids, dtype=torch.bool))))
    assert_same(found, expected)
    backpropagate(expected, found)
    assert_same_gradients(gemma3, theirs, model)


@torch.no_grad()
@pytest.mark.parametrize("lengths", [[1], [12, 7], [41, 23]])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_encoder_under_a_causal_mask_is_gemma(in_double, shape, lengths):
    theirs = gemma(shape=shape).double()
    config = model_config(gemma3, theirs)
    causal = replace(config, encoder=replace(config.encoder, attention=config.decoder.attention))
    ids, real = text(lengths, pad=0)
    states = theirs.model(input_ids=ids).last_hidden_state
    assert_same(ours(gemma3, theirs, causal).double().encode(ids, real).states[real], states[real])


# Folders


@pytest.mark.parametrize("towers", [0, 2])
def test_a_folder_and_its_vision_tower_come_back(towers, tmp_path):
    theirs = t5gemma(towers=towers)
    theirs.save_pretrained(tmp_path / "theirs")
    convert(tmp_path / "theirs", tmp_path / "model", Conversion())
    model = read_model_folder(tmp_path / "model")
    assert model.vocabulary.decoder_start == "<bos>"
    convert(tmp_path / "model", tmp_path / "back", Conversion(to="huggingface"))
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "back"))
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        torch.testing.assert_close(after[name], tensor, atol=0 if name in model.carried else 1e-6, rtol=0)
    values = [json.loads((tmp_path / name / "config.json").read_text())["encoder"] for name in ("theirs", "back")]
    assert values[0]["vision_config"] == values[1]["vision_config"]
    again, report = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert again.generation_config.decoder_start_token_id == 2
    ids, target = text([30])[0], text([15], seed=1)[0]
    with torch.no_grad():
        found, expected = (each.eval()(input_ids=ids, decoder_input_ids=target).logits for each in (again, theirs))
    assert_same(found, expected, tolerance=1e-4)  # the weights of norms, stored less 1, come back rounded


@pytest.mark.parametrize("spelling", ["hub", "memory"])
def test_other_spellings_of_names_are_read(spelling, tmp_path):
    theirs = t5gemma(towers=1)
    theirs.save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    if spelling == "hub":
        stored = {name.replace("vision_tower.", "vision_tower.vision_model."): x for name, x in stored.items()}
    else:
        stored = {name: x.clone() for name, x in theirs.state_dict().items()}
    save_file(stored, tmp_path / "model.safetensors")
    model = read_hugging_face(tmp_path)
    assert len(model.carried) == sum("vision" in name or "modal" in name for name in stored)
    assert "model.encoder.vision_tower.post_layernorm.weight" in model.carried


@pytest.mark.parametrize("nested", [False, True])
def test_gemma_becomes_a_t5gemma2_by_one_command(in_double, nested, tmp_path):
    theirs = gemma(nested)
    theirs.save_pretrained(tmp_path / "gemma")
    assignments = ("model.encoder.positions.factor=16.0", f"model.embedding.own_id={EOI}")
    convert(tmp_path / "gemma", tmp_path / "model", Conversion(assignments=assignments))
    convert(tmp_path / "model", tmp_path / "back", Conversion(to="huggingface"))
    again, report = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ids, target = text([30])[0], text([15], seed=1)[0]
    ids[:, 4] = EOI
    model = loaded(read_model_folder(tmp_path / "model")).double()
    row = model.tokens.weight[EOI]
    assert torch.equal(model.tokens.own, row)
    with torch.no_grad():
        found = model.logits(model.decode(target, model.encode(ids)))
        assert_same(again.double().eval()(input_ids=ids, decoder_input_ids=target).logits, found)
        assert (len(again.model.encoder.vision_tower.state_dict()) > 7) == nested


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"layer_types": ["sliding_attention", "full_attention", "full_attention"]}, "layer_types is"),
        ({"full": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 9.0}}, "rope_parameters is"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping is 30.0"),
    ],
)
def test_what_ours_cannot_be_is_refused(options, said):
    values = {**stack(**{"layers": 3, "full": options.pop("full", None)}), **options}
    config = Gemma3TextConfig(**values).to_dict()
    with pytest.raises(FarspanError, match=said):
        gemma3.read_config(config)


@pytest.mark.parametrize("kind", ["t5gemma", "gemma2"])
def test_capped_scores_are_refused(kind):
    with pytest.raises(FarspanError, match=f"{kind} caps attention scores"):
        family_of(kind)


@pytest.mark.parametrize(("layers", "every", "full"), [(7, 6, -1), (18, 6, -1), (5, 3, 0), (4, 1, -1), (3, 2, 0)])
def test_rules_of_layers_are_found(layers, every, full):
    pattern = Layered(3, 4, every, full)
    types = ["sliding_attention" if pattern.at(layer).local else "full_attention" for layer in range(layers)]
    assert gemma3.read_layers(types, 3, 4, False) == pattern


def test_equal_bases_are_one():
    values = {"full_attention": {"rope_type": "default", "rope_theta": 9.0}}
    assert gemma3.read_rotary(values | {"sliding_attention": values["full_attention"]}) == Rotary(9.0)
    assert not differences(model_config(gemma3, gemma()), model_config(gemma3, gemma(nested=True)))


def test_a_run_takes_the_tower_of_its_first_model(tmp_path):
    t5gemma(towers=1, layers=2).save_pretrained(tmp_path / "theirs")
    convert(tmp_path / "theirs", tmp_path / "model", Conversion())
    first = read_model_folder(tmp_path / "model")
    recipe = toy_recipe(tmp_path / "run", initial_model=str(tmp_path / "model"))
    recipe = replace(recipe, model=first.config, data=replace(recipe.data, decoder_start="<bos>"))
    source = ToySource(special=SpecialTokens(dict(first.vocabulary.special.ids), VOCAB))
    train(recipe, source=source, until=1)
    convert(tmp_path / "run", tmp_path / "back", Conversion(to="huggingface"))
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "back"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in first.carried)
    values = [json.loads((tmp_path / name / "config.json").read_text())["encoder"] for name in ("theirs", "back")]
    assert values[0]["vision_config"] == values[1]["vision_config"]
