"""Whole models against Hugging Face's BART, padding, tying, pooling; masked language models, alone and joint."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from transformers import BartConfig, BartModel

from corpora.errors import FarspanError
from objectives.api.examples import IGNORED
from tests.trainer.model.test_encoder import CONFIG, VOCAB, WIDTH, pooled
from tests.trainer.toy import toy_recipe
from trainer.model.build import build_model
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.layers.sublayers import FeedForwardConfig, NormConfig
from trainer.model.loss import CHUNK, LossConfig
from trainer.model.masked_lm import JointModel, MaskedLM
from trainer.model.patterns.block import Block
from trainer.model.patterns.full import Full
from trainer.model.positions import Learned
from trainer.model.seq2seq import Seq2Seq
from trainer.parallel.wrapping import apply_activation_checkpointing

PADDED = torch.arange(24) < torch.tensor([[24], [13], [1]])


@pytest.fixture(scope="module")
def bart() -> BartModel:
    torch.manual_seed(1)
    options: dict[str, Any] = {"attn_implementation": "eager"}
    config = BartConfig(
        vocab_size=VOCAB, d_model=WIDTH, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=40, dropout=0.0,
        pad_token_id=1, init_std=0.3, **options,
    )  # fmt: skip
    model = BartModel(config).eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)  # biases and norms start at 0 and 1 and would not show
    return model


def copy_layers(ours, theirs) -> None:
    """Weights of a Hugging Face BART stack into ours."""

    def linear(mine, *sources):
        mine.weight.data = torch.cat([source.weight.data for source in sources])
        mine.bias.data = torch.cat([source.bias.data for source in sources])

    linear(ours.embedded.norm, theirs.layernorm_embedding)
    ours.embedded.positions.weight.data = theirs.embed_positions.weight.data[2:]
    for mine, layer in zip(ours.layers, theirs.layers, strict=True):
        attention = layer.self_attn
        linear(mine.attention.qkv, attention.q_proj, attention.k_proj, attention.v_proj)
        linear(mine.attention.out, attention.out_proj)
        linear(mine.attention_residual.norm, layer.self_attn_layer_norm)
        linear(mine.feed_forward.up, layer.fc1)
        linear(mine.feed_forward.down, layer.fc2)
        linear(mine.feed_forward_residual.norm, layer.final_layer_norm)
        if hasattr(layer, "encoder_attn"):
            cross = layer.encoder_attn
            linear(mine.cross_attention.q, cross.q_proj)
            linear(mine.cross_attention.kv, cross.k_proj, cross.v_proj)
            linear(mine.cross_attention.out, cross.out_proj)
            linear(mine.cross_attention_residual.norm, layer.encoder_attn_layer_norm)


def from_bart(bart: BartModel, pattern: Block | Full) -> Seq2Seq:
    config = replace(
        CONFIG,
        encoder=replace(CONFIG.encoder, attention=pattern),
        decoder=replace(CONFIG.decoder, positions=Learned(40)),
    )
    model: Any = build_model(config, VOCAB, seed=0)
    model.tokens.weight.data = bart.shared.weight.data
    copy_layers(model.encoder, bart.encoder)
    copy_layers(model.decoder, bart.decoder)
    return model.eval()


@pytest.mark.parametrize("real", [torch.ones(3, 24, dtype=torch.bool), PADDED])
def test_block_encoder_equals_bart_under_a_dense_mask(bart, real):
    model = from_bart(bart, Block(8))
    ids = torch.randint(3, VOCAB, (3, 24))
    seen = (torch.arange(24)[:, None] // 8 == torch.arange(24) // 8)[None] & real[:, None, :]
    additive = torch.zeros(3, 1, 24, 24).masked_fill(~seen[:, None], torch.finfo(torch.float32).min)
    with torch.no_grad():
        expected = bart.encoder(ids, attention_mask=additive).last_hidden_state
        got = model.encode(ids, None if real.all() else real).states
    torch.testing.assert_close(got[real], expected[real], atol=1e-5, rtol=0)


@pytest.mark.parametrize("pattern", [Block(32), Full()])
def test_whole_model_equals_bart_within_one_block(bart, pattern):
    model = from_bart(bart, pattern)
    ids, decoder_ids = torch.randint(3, VOCAB, (3, 24)), torch.randint(3, VOCAB, (3, 9))
    with torch.no_grad():
        hidden = bart(ids, PADDED.long(), decoder_input_ids=decoder_ids, decoder_attention_mask=torch.ones(3, 9))
        expected = hidden.last_hidden_state @ bart.shared.weight.T
        got = model.logits(model.decode(decoder_ids, model.encode(ids, PADDED)))
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-5)  # logits reach 30 here
    torch.testing.assert_close(got.log_softmax(-1), expected.log_softmax(-1), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("pooling", [None, Pooling(layers=2, kernel=6, stride=4, padding=3, reference_init=True)])
def test_padding_never_shows(norm, pooling):
    model: Any = build_model(replace(pooled(pooling), norm=NormConfig(placement=norm)), VOCAB, seed=0).eval()
    ids, decoder_ids = torch.randint(0, VOCAB, (3, 24)), torch.randint(0, VOCAB, (3, 5))
    with torch.no_grad():
        together = model.decode(decoder_ids, model.encode(ids, PADDED))
        for row, length in enumerate([24, 13, 1]):
            alone = model.decode(decoder_ids[row : row + 1], model.encode(ids[row : row + 1, :length]))
            torch.testing.assert_close(together[row], alone[0], atol=1e-5, rtol=0)


def test_a_row_of_padding_has_a_finite_loss_and_gradients():
    model = build_model(pooled(Pooling(layers=1, kernel=6, stride=4, padding=3)), VOCAB, seed=0)
    real = torch.arange(24) < torch.tensor([[24], [0]])
    ids, target = torch.randint(0, VOCAB, (2, 24)), torch.randint(0, VOCAB, (2, 5))
    target_labels = target.clone()
    target_labels[1] = IGNORED
    loss = model(ids, target, target_labels, real).minimised
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_loss_is_the_sum_over_real_targets():
    model: Any = build_model(CONFIG, VOCAB, seed=0)
    ids, decoder_ids = torch.randint(0, VOCAB, (2, 9)), torch.randint(0, VOCAB, (2, 6))
    labels = torch.randint(0, VOCAB, (2, 6))
    labels[1, 4:] = IGNORED
    logits = model.logits(model.decode(decoder_ids, model.encode(ids)))
    expected = -sum(
        logits[b, t].log_softmax(-1)[labels[b, t]] for b in range(2) for t in range(6) if labels[b, t] != IGNORED
    )
    torch.testing.assert_close(model(ids, decoder_ids, labels).minimised, expected, atol=1e-3, rtol=1e-5)


def test_activation_checkpointing_changes_neither_loss_nor_gradients_nor_names():
    ids, target = torch.randint(0, VOCAB, (2, 24)), torch.randint(0, VOCAB, (2, 6))
    runs = []
    for mode in ("none", "layer"):
        model = build_model(replace(CONFIG, dropout=0.2), VOCAB, seed=0)
        apply_activation_checkpointing(model, mode)
        torch.manual_seed(5)
        loss = model(ids, target, target).minimised
        loss.backward()
        runs.append((loss, {name: p.grad for name, p in model.named_parameters()}))
    torch.testing.assert_close(runs[0], runs[1], atol=0, rtol=0)


def test_one_position_and_one_more_than_the_table():
    model = build_model(CONFIG, VOCAB, seed=0)
    assert model.encode(torch.tensor([[3]])).states.shape == (1, 1, WIDTH)
    with pytest.raises(FarspanError, match="41 positions, the model has 40"):
        model.encode(torch.zeros(1, 41, dtype=torch.long))


def test_no_two_tokens_start_alike():
    """Sentinels and other special tokens as little as words: BART-LS starts all its sentinels with one vector."""
    model = build_model(CONFIG, VOCAB, seed=0)
    tables = [weight for weight in model.state_dict().values() if weight.dim() == 2 and len(weight) == VOCAB]
    assert tables
    for table in tables:
        assert len(torch.unique(table, dim=0)) == VOCAB


def test_weights_depend_on_seed_and_name_only():
    first, again, other = (build_model(CONFIG, VOCAB, seed=seed).state_dict() for seed in (0, 0, 1))
    deeper = build_model(
        replace(CONFIG, decoder=DecoderConfig(layers=3, positions=Learned(12))), VOCAB, seed=0
    ).state_dict()
    assert all(torch.equal(first[name], again[name]) and torch.equal(first[name], deeper[name]) for name in first)
    assert not torch.equal(first["tokens.weight"], other["tokens.weight"])
    assert first["tokens.weight"].std().item() == pytest.approx(0.3, rel=0.1)
    assert F.cosine_similarity(first["tokens.weight"][0], first["tokens.weight"][1], dim=0).abs() < 0.9


ENCODER_ALONE = ModelConfig(
    width=16, heads=HeadsConfig(count=4), feed_forward=FeedForwardConfig(width=32), dropout=0.0, init_std=0.3,
    encoder=EncoderConfig(layers=2, positions=Learned(40), attention=Block(8)),
)  # fmt: skip


def test_loss_counts_asked_positions_only():
    model = build_model(ENCODER_ALONE, 50, seed=0)
    assert isinstance(model, MaskedLM)
    model.bias.data.normal_()
    ids = torch.randint(0, 50, (2, 20))
    labels = torch.full((2, 20), IGNORED)
    labels[0, [1, 7]] = torch.tensor([3, 4])
    labels[1, 19] = 5
    spoken = model.logits(model.encode(ids)).log_softmax(-1)
    expected = -(spoken[0, 1, 3] + spoken[0, 7, 4] + spoken[1, 19, 5])
    torch.testing.assert_close(model(ids, labels).minimised, expected, atol=1e-4, rtol=1e-5)


def test_nothing_asked_is_a_loss_of_zero_with_zero_gradients():
    model = build_model(ENCODER_ALONE, 50, seed=0)
    loss = model(torch.randint(0, 50, (1, 9)), torch.full((1, 9), IGNORED)).minimised
    loss.backward()
    assert loss.item() == 0
    assert all(p.grad is None or (p.grad == 0).all() for p in model.parameters())


JOINT_VOCAB, WEIGHT = 30, 0.4


@pytest.fixture
def parts():
    config = toy_recipe("unused", dropout=0.0).model
    config = replace(config, init_std=0.3)
    return build_model(config, JOINT_VOCAB, seed=0), build_model(
        replace(config, decoder=None, width=8), JOINT_VOCAB + 2, seed=1
    )


@pytest.fixture
def batch():
    torch.manual_seed(0)
    ids, target, shown = (torch.randint(0, JOINT_VOCAB, (2, width)) for width in (16, 8, 24))
    labels = torch.where(torch.rand(2, 24) < 0.3, shown, IGNORED)
    return {
        "source_ids": ids, "decoder_ids": target, "labels": target, "candidate_ids": shown,
        "candidate_padding_mask": torch.arange(24) < torch.tensor([[24], [20]]), "candidate_labels": labels,
        "target_counts": torch.tensor([40, 30]),
    }  # fmt: skip


def split(batch):
    own = {name: value for name, value in batch.items() if not name.startswith(("candidate", "target_counts"))}
    generator = {"source_ids": batch["candidate_ids"], "source_padding_mask": batch["candidate_padding_mask"]}
    return own, {**generator, "labels": batch["candidate_labels"]}


@pytest.mark.parametrize("loss", [LossConfig(), LossConfig(label_smoothing=0.1, z_loss=0.01)])
def test_the_loss_is_that_of_both_by_their_means(parts, batch, loss):
    model, generator = parts
    own, shown = split(batch)
    alone, beside = (part(**inputs, loss=loss) for part, inputs in ((model, own), (generator, shown)))
    mean = alone.minimised / 40 + WEIGHT * beside.minimised / 30
    expected = torch.autograd.grad(mean, [*model.parameters(), *generator.parameters()], materialize_grads=True)
    joint = JointModel(model, generator, WEIGHT)
    losses = joint(**batch, loss=loss)
    torch.testing.assert_close(losses.minimised / 40, mean)
    torch.testing.assert_close(losses.plain, alone.plain)
    found = torch.autograd.grad(losses.minimised / 40, [*model.parameters(), *generator.parameters()],
                                materialize_grads=True)  # fmt: skip
    torch.testing.assert_close(found, expected)


def test_held_out_batches_ask_nothing_of_the_generator(parts, batch):
    model, generator = parts
    own, _ = split(batch)
    torch.testing.assert_close(JointModel(model, generator, WEIGHT)(**own), model(**own))


def test_names_of_parameters_are_those_of_the_parts(parts):
    model, generator = parts
    names = {*model.state_dict(), *(f"generator.{name}" for name in generator.state_dict())}
    assert set(JointModel(model, generator, WEIGHT).state_dict()) == names


@pytest.mark.parametrize("chunk", [1, 5, CHUNK])
def test_scores_are_the_losses_of_the_asked_tokens(parts, batch, chunk, monkeypatch):
    monkeypatch.setattr("trainer.model.masked_lm.CHUNK", chunk)
    model, generator = parts
    assert isinstance(generator, MaskedLM)
    ids, real, labels = (batch[f"candidate_{name}"] for name in ("ids", "padding_mask", "labels"))
    scores = JointModel(model, generator, WEIGHT).score(ids, real, labels)
    logits = generator.logits(generator.encode(ids, real))
    expected = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=IGNORED, reduction="none")
    torch.testing.assert_close(scores, expected)
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores.sum(), generator(ids, labels, real).plain)


def test_nothing_asked_is_no_score_and_no_loss(parts, batch):
    joint = JointModel(*(*parts, WEIGHT))
    nothing = torch.full_like(batch["candidate_labels"], IGNORED)
    assert not joint.score(batch["candidate_ids"], batch["candidate_padding_mask"], nothing).any()
    own, _ = split(batch)
    empty = joint(**batch | {"candidate_labels": nothing, "target_counts": torch.tensor([40, 0])})
    torch.testing.assert_close(empty, parts[0](**own))
