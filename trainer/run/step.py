"""One update after another."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import astuple, dataclass, replace
from typing import Any, TypedDict

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from corpora.errors import FarspanError
from corpora.keyed import make_key
from trainer.data.config import Batch, Batches
from trainer.data.curriculum import Stage
from trainer.metrics import Counts, derive
from trainer.model.config import ModelConfig
from trainer.model.joint import JointModel
from trainer.model.loss import CROSS_ENTROPY, LossConfig, Losses
from trainer.model.masked_lm import MaskedLM
from trainer.model.seq2seq import Seq2Seq
from trainer.optim.optimizer import build_optimizer, calmer
from trainer.optim.schedule import learning_rate_factor
from trainer.parallel.device import Timing, memory_in_use, start_timing
from trainer.parallel.distributed import World
from trainer.parallel.wrapping import (
    apply_activation_checkpointing,
    apply_attention,
    apply_compile,
    apply_parallel,
    reducing,
)
from trainer.recipe import Recipe
from trainer.run.joint import generator_flops


class Sample(TypedDict):
    """A sample that metrics name.

    Attributes:
        number: in the order of its stage.
        sequence_id: 32 hexadecimal digits.
    """

    number: int
    sequence_id: str


@dataclass(frozen=True)
class Update:
    """An update that the device was told to make; ``Trainer.record`` waits for what became of it.

    Attributes:
        step: finished updates, this one included.
        timing: of it, with the loss summed over all ranks and the norm of the gradient before it is clipped.
        waited: seconds for its batches.
        learning_rate: with which it is made.
        counts: of all ranks.
        generator_loss: of joint training, per candidate token; None without it.
        batches: samples and loss of each micro-batch of this rank.
    """

    step: int
    timing: Timing
    waited: float
    learning_rate: float
    counts: Counts
    generator_loss: float | None
    batches: Sequence[tuple[list[Sample], Tensor]]


class Trainer:
    """Model, optimiser and the number of finished updates; ``update`` makes the next one.

    Attributes:
        model: whose weights are trained; under FSDP each rank holds a share of them.
        step: finished updates; with the recipe and the data it determines everything that follows.
    """

    def __init__(
        self, model: Seq2Seq | MaskedLM, recipe: Recipe, world: World, peak_tflops: float | None = None
    ) -> None:
        """Take ``model`` to this rank's device, and apply to it what the recipe's run and parallel sections ask for.

        Args:
            model: the same on every rank.
            recipe: everything but the data.
            world: that train together.
            peak_tflops: of one device, if known.
        """
        run = recipe.run
        self.model = model.to(world.device)
        self.vocab_size = model.tokens.num_embeddings
        apply_activation_checkpointing(self.model, run.activation_checkpointing)
        if run.compile:
            apply_compile(self.model)
        self._called = apply_parallel(self.model, recipe.parallel, world, run.precision)
        self.recipe, self.world, self.peak_tflops = recipe, world, peak_tflops
        self.optimizer = build_optimizer(self.model, recipe.optimizer)
        self.step = 0
        self._attention = recipe.model.encoder.attention
        self._skipped = 0

    def update(self, batches: Batches, stop: bool = False) -> Update | None:
        """Begin the next update.

        Every gradient is divided by the target tokens of the whole step, so that it depends on neither micro-batches
        nor ranks nor how full they are. Where loss or gradient are not finite, the weights stay as they are; all ranks
        see the same loss and gradient, so all of them agree.

        Args:
            batches: of this rank.
            stop: whether this rank wishes to stop.

        Returns:
            None where a rank wishes to stop: then nothing was done.
        """
        timing, begun = start_timing(self.world.device), time.perf_counter()
        made = batches.step(self.step)
        waited = time.perf_counter() - begun
        stage = self.recipe.stage_at(self.step)
        own = Counts.of(made, self._stage_model(stage), self.vocab_size)
        if isinstance(self.model, JointModel):
            own += Counts(flops=generator_flops(made, self.model.generator))
        stopping, *counts = self.world.sum(stop, *astuple(own))
        if stopping:
            return None
        totals = Counts(*map(int, counts))
        losses = self.gradients(stage, made, totals.target_tokens)
        loss = self.world.sum_on_device(torch.stack(losses).double().sum())
        norm = self._clipped()
        rate = self._change_weights(stage, torch.isfinite(norm) & torch.isfinite(loss))
        self.step += 1
        generator_loss = getattr(batches, "generator_loss", None)
        seen = [(_samples(batch), own_loss) for batch, own_loss in zip(made, losses, strict=True)]
        timing.end(loss, norm)
        return Update(self.step, timing, waited, rate, totals, generator_loss, seen)

    def gradients(self, stage: Stage, batches: Sequence[Batch], targets: int = 1) -> list[Tensor]:
        """Pass micro-batches forward and backward as ``stage`` asks; gradients are those of the sum over all ranks.

        Args:
            stage: whose attention holds.
            batches: of this rank.
            targets: what gradients are divided by.

        Returns:
            Cross-entropy of each batch, summed over its target tokens: ``()``.
        """
        if stage.attention != self._attention:
            apply_attention(self.model, stage.attention)
            self._attention = stage.attention
        self.model.train()
        losses = []
        for number, batch in enumerate(batches):
            # Dropout belongs to the sample, not to what was drawn before it: nothing of it has to be saved.
            torch.manual_seed(self._dropout_seed(stage, batch))
            with reducing(self._called, self.recipe.parallel, last=number == len(batches) - 1):
                loss = self._pass(self._called, batch, self.recipe.loss)
                # Ranks average their gradients: times their number it is the sum.
                (loss.minimised * (self.world.size / max(targets, 1))).backward()
            losses.append(loss.plain)
        return losses

    def record(self, update: Update) -> dict[str, Any]:
        """The metrics of an update, once the device has made it; all ranks ask for every update, in order.

        Updates that are queued after it are not waited for. One that was left out has no loss, and names its sequences
        as ``skipped``.
        """
        seconds, (loss, norm) = update.timing.read()
        finite = math.isfinite(loss) and math.isfinite(norm)
        numbers = derive(
            update.counts, loss=loss if finite else None, seconds=seconds, waited=update.waited,
            devices=self.world.size, peak_tflops=self.peak_tflops,
        )  # fmt: skip
        record: dict[str, Any] = {
            "step": update.step,
            **numbers,
            "learning_rate": update.learning_rate,
            "grad_norm": norm if finite else None,
            "memory_gib": memory_in_use(self.world.device) / 2**30,  # of this rank
        }
        if update.generator_loss is not None:
            record["generator_loss"] = update.generator_loss
        return record if finite else {**record, "skipped": self._suspects(update)}

    def count_skipped(self, record: dict[str, Any]) -> None:
        """Stop where the recipe wants no update, or not so many in a row, to be left out.

        Raises:
            FarspanError: naming samples of the update of ``record``.
        """
        run, step = self.recipe.run, record["step"]
        if "skipped" not in record:
            self._skipped = 0
            return
        self._skipped += 1
        named = [" ".join(map(str, sample.values())) for sample in record["skipped"][:4]]
        ids = "; ".join(named) + ("; ..." if len(record["skipped"]) > 4 else "")
        cure = f"look at these sequences in the corpus, or {calmer(run.precision)}"
        if run.non_finite == "abort":
            raise FarspanError(
                f"step {step}: loss or gradient is not finite (samples {ids}); {cure}, or set run.non_finite to skip"
            )
        if self._skipped >= run.max_skipped:
            raise FarspanError(
                f"{self._skipped} updates in a row, up to step {step}, had a loss or gradient that is not finite; "
                f"metrics.jsonl names their samples (the last ones: {ids}); {cure}"
            )

    def loss(self, batch: Batch) -> Tensor:
        """``()``: cross-entropy of a batch summed over its target tokens, as the model now is."""
        return self._pass(self.model, batch).plain

    def _pass(self, model: torch.nn.Module, batch: Batch, loss: LossConfig = CROSS_ENTROPY) -> Losses:
        with self._precision():
            return model(**batch.to(self.world.device).inputs, loss=loss)

    def _precision(self) -> AbstractContextManager[Any]:
        sharded = self.world.size > 1 and self.recipe.parallel.mode != "ddp"
        if self.recipe.run.precision == "fp32" or sharded:  # FSDP computes in bfloat16 by its own policy
            return nullcontext()
        return torch.autocast(self.world.device.type, torch.bfloat16)

    def _clipped(self) -> Tensor:
        """Cut all gradients to the recipe's norm; the norm that they had together."""
        for parameter in self.model.parameters():
            if parameter.grad is None:  # that no batch of the step used: whether others used it differs by mode
                parameter.grad = torch.zeros_like(parameter)
        clip = self.recipe.optimizer.clip_norm or math.inf
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), clip)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    def _change_weights(self, stage: Stage, finite: Tensor) -> float:
        """The optimiser's step where ``finite``, ``()`` bool, is true; gradients are forgotten in any case.

        Returns:
            Its learning rate.
        """
        done = self.step - stage.schedule_start
        rate = stage.learning_rate * learning_rate_factor(done, stage.schedule_steps, stage.schedule)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        if self.optimizer.defaults.get("fused"):
            # The kernel itself looks at this and leaves everything as it is; nothing waits for the device.
            self.optimizer.found_inf = finite.logical_not().float()  # type: ignore[attr-defined]
            self.optimizer.step()
        elif finite.item():
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return rate

    def _dropout_seed(self, stage: Stage, batch: Batch) -> int:
        names = {"stage": stage.first_step, "sample": int(batch.samples[0])}
        key = make_key(self.recipe.run.seed, "dropout", names)
        return int.from_bytes(key[:8], "little", signed=True)

    def _stage_model(self, stage: Stage) -> ModelConfig:
        model = self.recipe.model
        return replace(model, encoder=replace(model.encoder, attention=stage.attention))

    def _suspects(self, update: Update) -> list[Sample]:
        """Of all ranks' micro-batches whose loss is not finite; of all, where only gradients are not."""
        own = [[bool(loss.isfinite()), samples] for samples, loss in update.batches]
        everyone = [batch for rank in self.world.gather(own) for batch in rank]
        bad = [samples for finite, samples in everyone if not finite] or [samples for _, samples in everyone]
        # A batch that asks for nothing repeats samples of another.
        return list({sample["number"]: sample for samples in bad for sample in samples}.values())


def _samples(batch: Batch) -> list[Sample]:
    ids = (row.tobytes().hex() for row in batch.sequence_ids)
    return [{"number": int(number), "sequence_id": name} for number, name in zip(batch.samples, ids, strict=True)]
