"""Tests of the loss, with and without R3F."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from corpora.errors import FarspanError
from objectives.api.examples import IGNORED
from tests.trainer.toy import ToySource, make_trainer, toy_recipe
from trainer.data.loader import Loader
from trainer.data.mixture import Mixture
from trainer.model.context import make_context
from trainer.model.decoder import EncoderOutput
from trainer.model.loss import LossConfig, R3FConfig, sum_cross_entropy, with_noise
from trainer.recipe import load_recipe
from trainer.run.step import Trainer


@pytest.mark.parametrize("chunk", [1, 4, 10, 99])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_any_chunks_give_the_plain_loss_and_gradients(chunk, with_bias, smoothing):
    hidden, weight = torch.randn(10, 6, requires_grad=True), torch.randn(7, 6, requires_grad=True)
    bias = torch.randn(7, requires_grad=True) if with_bias else None
    labels = torch.randint(0, 7, (10,))
    labels[[2, 9]] = IGNORED
    inputs = [x for x in (hidden, weight, bias) if x is not None]
    logits = hidden @ weight.T + (0 if bias is None else bias)

    def expected(share):
        return F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum", label_smoothing=share)

    chunked = sum_cross_entropy(hidden, labels, weight, bias, loss=LossConfig(label_smoothing=smoothing), chunk=chunk)
    torch.testing.assert_close(chunked.minimised, expected(smoothing))
    torch.testing.assert_close(chunked.plain, expected(0.0).detach())
    assert not chunked.plain.requires_grad
    found = torch.autograd.grad(chunked.minimised, inputs)
    torch.testing.assert_close(found, torch.autograd.grad(expected(smoothing), inputs))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_nothing_asked_is_zero_with_zero_gradients(smoothing):
    for rows in (0, 3):
        hidden, weight = torch.randn(rows, 6, requires_grad=True), torch.randn(7, 6, requires_grad=True)
        labels = torch.full((rows,), IGNORED)
        losses = sum_cross_entropy(hidden, labels, weight, loss=LossConfig(label_smoothing=smoothing, z_loss=0.1))
        assert losses.minimised == losses.plain == 0
        (gradient,) = torch.autograd.grad(losses.minimised, [weight])
        assert not gradient.any()


def test_the_sum_is_float32_under_bfloat16():
    hidden, weight = torch.randn(3000, 8), torch.randn(50, 8)
    labels = torch.randint(0, 50, (3000,))
    with torch.autocast("cpu", torch.bfloat16):
        low = sum_cross_entropy(hidden, labels, weight).minimised
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, sum_cross_entropy(hidden, labels, weight).minimised, rtol=2e-3, atol=0)


def test_the_sum_keeps_float64():
    hidden, weight = torch.randn(30, 8, dtype=torch.float64), torch.randn(50, 8, dtype=torch.float64)
    labels = torch.randint(0, 50, (30,))
    expected = F.cross_entropy(hidden @ weight.T, labels, reduction="sum")
    torch.testing.assert_close(
        sum_cross_entropy(hidden, labels, weight, chunk=7).minimised, expected, rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("chunk", [3, 99])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_z_loss_is_the_squared_log_of_the_partition_function(chunk, smoothing):
    hidden, weight = torch.randn(10, 6, requires_grad=True), torch.randn(7, 6, requires_grad=True)
    labels = torch.randint(0, 7, (10,))
    labels[[2, 9]] = IGNORED
    logits = hidden @ weight.T
    plain = F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum", label_smoothing=smoothing)
    expected = plain + 0.05 * logits.exp().sum(-1).log()[labels != IGNORED].square().sum()
    loss = LossConfig(label_smoothing=smoothing, z_loss=0.05)
    found = sum_cross_entropy(hidden, labels, weight, loss=loss, chunk=chunk)
    torch.testing.assert_close(found.minimised, expected)
    torch.testing.assert_close(found.plain, F.cross_entropy(logits, labels, reduction="sum").detach())
    torch.testing.assert_close(*(torch.autograd.grad(x, [hidden, weight]) for x in (found.minimised, expected)))


@pytest.mark.parametrize("share", [0.1, 0.7])
def test_smoothing_in_the_form_of_fairseq(share):
    hidden, weight = torch.randn(10, 6, dtype=torch.float64), torch.randn(7, 6, dtype=torch.float64)
    labels = torch.randint(0, 7, (10,))
    labels[[2, 9]] = IGNORED
    log_probabilities = (hidden @ weight.T).log_softmax(-1)[labels != IGNORED]
    nll = -log_probabilities.gather(1, labels[labels != IGNORED][:, None]).sum()
    each = share / (7 - 1)
    expected = (1 - share - each) * nll + each * -log_probabilities.sum()
    loss = LossConfig(label_smoothing=share, label_smoothing_form="fairseq")
    found = sum_cross_entropy(hidden, labels, weight, loss=loss)
    torch.testing.assert_close(found.minimised, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(found.plain, nll, rtol=1e-12, atol=0)
    szegedy = sum_cross_entropy(hidden, labels, weight, loss=LossConfig(label_smoothing=share)).minimised
    assert abs(szegedy - expected) > 0.01


def trainer_with(r3f: R3FConfig | None, *, dropout: float = 0.0, smoothing: float = 0.0, **run) -> Trainer:
    recipe = toy_recipe("unused", dropout=dropout, micro_batch_size=6, **run)
    loss = LossConfig(label_smoothing=smoothing, label_smoothing_form="fairseq", r3f=r3f)
    recipe = replace(recipe, loss=loss, model=replace(recipe.model, init_std=0.3))
    return make_trainer(recipe)


def batch_of(trainer: Trainer):
    """The first micro-batch, whose targets are padded."""
    (batch, *_) = Loader(trainer.unit.recipe.curriculum, [Mixture.of(ToySource())], trainer.unit.recipe.run.seed).step(
        0
    )
    assert (batch.labels == IGNORED).any()
    return batch


def gradients(trainer: Trainer, batch, targets: int = 1) -> tuple[list[torch.Tensor], torch.Tensor]:
    (stage,) = trainer.unit.recipe.curriculum
    (losses,) = trainer.gradients(stage, [batch], targets)
    return [p.grad for p in trainer.model.parameters() if p.grad is not None], losses.divergence


@pytest.fixture
def _float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def published(model, batch, seed: int, r3f: R3FConfig, smoothing: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of label_smoothed_cross_entropy_r3f.py, divided by the number of tokens, and its divergence."""
    tokens = F.embedding(batch.source_ids, model.tokens.weight)
    torch.manual_seed(seed)
    uniform = r3f.noise == "uniform"
    noise = torch.empty_like(tokens)
    noise = noise.uniform_(-r3f.eps, r3f.eps) if uniform else noise.normal_(0, r3f.eps)

    def predicted(vectors):
        context = make_context(batch.source_padding_mask, None, None)
        states = EncoderOutput(model.encoder(vectors, context)[0], batch.source_padding_mask)
        return model.decoder(F.embedding(batch.decoder_ids, model.tokens.weight), states) @ model.tokens.weight.T

    input_logits, noised_logits = predicted(tokens), predicted(tokens + noise)
    labels = batch.labels.long()
    sample_size, targets = int((labels != IGNORED).sum()), labels != IGNORED
    log_p = input_logits.log_softmax(-1)
    nll = -log_p[targets].gather(-1, labels[targets][:, None]).sum()
    eps_i = smoothing / (input_logits.shape[-1] - 1)
    loss = (1 - smoothing - eps_i) * nll + eps_i * -log_p[targets].sum()
    if r3f.per == "token":  # the paper's meaning: the positions with a target alone
        input_logits, noised_logits = input_logits[targets], noised_logits[targets]
    p, q = input_logits.log_softmax(-1), noised_logits.log_softmax(-1)
    divergence = F.kl_div(q, p.exp(), reduction="sum") + F.kl_div(p, q.exp(), reduction="sum")
    symm_kl = divergence / len(noised_logits)  # sentences, or tokens
    return (loss + r3f.weight * sample_size * symm_kl) / sample_size, divergence


@pytest.mark.usefixtures("_float64")
@pytest.mark.parametrize("per", ["sentence", "token"])
@pytest.mark.parametrize(("noise", "smoothing"), [("uniform", 0.1), ("normal", 0.0)])
def test_loss_and_gradients_are_those_of_a_direct_restatement(per, noise, smoothing):
    r3f = R3FConfig(weight=0.7, eps=0.4, noise=noise, per=per)
    trainer = trainer_with(r3f, smoothing=smoothing)
    batch = batch_of(trainer)
    found, divergence = gradients(trainer, batch, batch.target_tokens)
    (stage,) = trainer.unit.recipe.curriculum
    twin = trainer_with(r3f).model
    loss, expected = published(twin, batch, trainer._dropout_seed(stage, batch), r3f, smoothing)
    loss.backward()
    torch.testing.assert_close(divergence, expected.detach(), rtol=1e-12, atol=0)
    assert expected > 0.1
    for one, other in zip(found, (p.grad for p in twin.parameters() if p.grad is not None), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("chunk", [1, 4, 99])
def test_any_chunks_give_the_same_divergence_and_gradients(chunk):
    hidden, noised = torch.randn(10, 6, requires_grad=True), torch.randn(10, 6, requires_grad=True)
    weight, labels, counted = torch.randn(7, 6, requires_grad=True), torch.randint(0, 7, (10,)), torch.arange(10) < 8
    losses = sum_cross_entropy(hidden, labels, weight, noised=(noised, counted), chunk=chunk)
    p, q = ((x @ weight.T).log_softmax(-1)[counted] for x in (hidden, noised))
    expected = F.kl_div(q, p, log_target=True, reduction="sum") + F.kl_div(p, q, log_target=True, reduction="sum")
    torch.testing.assert_close(losses.divergence, expected)
    torch.testing.assert_close(losses.minimised, F.cross_entropy(hidden @ weight.T, labels, reduction="sum"))
    inputs = [hidden, noised, weight]
    found = torch.autograd.grad(losses.divergence, inputs)
    torch.testing.assert_close(found, torch.autograd.grad(expected, inputs), atol=1e-5, rtol=1e-4)


def test_the_two_passes_have_dropout_of_their_own():
    """Most of the divergence is that of two dropout masks; without dropout there is that of the noise alone."""
    found = []
    for dropout, eps in ((0.2, 1e-5), (0.0, 1e-5), (0.0, 0.3)):
        trainer = trainer_with(R3FConfig(eps=eps), dropout=dropout)
        found.append(float(gradients(trainer, batch_of(trainer))[1]))
    assert found[0] > 0.1
    assert abs(found[1]) < 1e-4
    assert found[2] > 0.01


@pytest.mark.parametrize("checkpointing", ["selective", "layer"])
def test_checkpointing_changes_no_gradient(checkpointing):
    r3f = R3FConfig(weight=1.0, eps=0.1)
    plain, other = (trainer_with(r3f, dropout=0.2, activation_checkpointing=mode) for mode in ("none", checkpointing))
    batch = batch_of(plain)
    for one, two in zip(gradients(plain, batch)[0], gradients(other, batch)[0], strict=True):
        torch.testing.assert_close(one, two)


def test_noise_is_added_in_float32_though_the_model_computes_in_bf16():
    trainer = trainer_with(R3FConfig(eps=1e-5), precision="bf16")
    seen = []
    trainer.model.encoder.embedded.register_forward_hook(
        lambda module, inputs, output: seen.append((inputs[0], output))
    )
    gradients(trainer, batch_of(trainer))
    (plain, first), (noised, second) = seen
    assert {plain.dtype, noised.dtype, first.dtype} == {torch.float32}
    assert (plain != noised).float().mean() > 0.99
    assert (first != second).float().mean() > 0.9  # they survive positions and LayerNorm
    narrow = torch.randn(1000, dtype=torch.bfloat16) / 20
    assert with_noise(narrow, R3FConfig()).dtype == torch.bfloat16  # FSDP's, in which little of it is left


@pytest.mark.parametrize("per", ["sentence", "token"])
def test_a_batch_without_targets_adds_nothing(per):
    trainer = trainer_with(R3FConfig(eps=0.3, per=per), dropout=0.2)
    found, divergence = gradients(trainer, batch_of(trainer).without_targets())
    assert divergence == 0
    assert not any(gradient.any() for gradient in found)


def test_an_update_records_the_divergence_and_counts_both_passes():
    with_r3f, without = trainer_with(R3FConfig(eps=0.3)), trainer_with(None)
    records = []
    for trainer in (with_r3f, without):
        loader = Loader(trainer.unit.recipe.curriculum, [Mixture.of(ToySource())], trainer.unit.recipe.run.seed)
        counts = trainer.unit.counts(trainer.model, loader.step(0), trainer.unit.recipe.curriculum[0])
        records.append((trainer.record(trainer.update(loader)), counts.flops))
    (record, flops), (plain, other) = records
    assert flops == 2 * other
    assert record["loss"] == pytest.approx(plain["loss"])
    assert record["r3f_divergence"] > 0
    assert "r3f_divergence" not in plain
    assert record["grad_norm"] != pytest.approx(plain["grad_norm"])


def test_evaluation_has_no_second_pass():
    trainer = trainer_with(R3FConfig())
    calls = []
    trainer.model.decoder.register_forward_hook(lambda *_: calls.append(1))
    trainer.model.eval()
    trainer.loss(batch_of(trainer))
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("loss.label_smoothing=-0.1", r"loss.label_smoothing is -0.1; it must lie in \[0, 1\)"),
        ("loss.label_smoothing=1.0", r"loss.label_smoothing is 1.0"),
        ("loss.z_loss=-0.1", r"loss.z_loss is -0.1"),
        ("loss.z_loss=inf", r"loss.z_loss is inf"),
        ("loss.r3f={weight=0.0}", r"loss.r3f.weight is 0.0; it must be above 0"),
        ("loss.r3f={eps=inf}", r"loss.r3f.eps is inf"),
        ("loss.r3f={per='word'}", r"loss.r3f.per is 'word'; choose one of 'sentence', 'token'"),
        ("model.decoder=none", r"loss.r3f compares predictions of a decoder, but the model has none"),
    ],
)
def test_settings_that_cannot_be_are_refused(setting, said):
    with pytest.raises(FarspanError, match=said):
        load_recipe("tiny", ["loss.r3f={}", setting])
