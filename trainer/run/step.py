"""The training step: forward, backward, clipping, optimizer."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import astuple, dataclass
from typing import Any, NotRequired, TypedDict

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from corpora.errors import FarspanError, out_of_memory
from corpora.keyed import make_key
from trainer.data.batch import Batch, Batches
from trainer.data.curriculum import Stage
from trainer.metrics import Counts, derive
from trainer.model.loss import CROSS_ENTROPY, LossConfig, Losses, R3FConfig
from trainer.model.seq2seq import Seq2Seq
from trainer.optim.optimizer import OptimizerConfig, build_optimizer
from trainer.parallel.device import Timing, memory_in_use
from trainer.parallel.distributed import World
from trainer.parallel.wrapping import (
    ParallelConfig,
    apply_activation_checkpointing,
    apply_attention,
    apply_compile,
    apply_parallel,
    reduction_context,
    whole_copy,
)
from trainer.run.units.unit import Model, TrainUnit
from trainer.run_config import RunConfig


class Sample(TypedDict):
    """A sample as identified in metrics."""

    number: int  # in the order of its stage
    sequence_id: str  # 32 hexadecimal digits
    origin: NotRequired[str]  # source, file and row; only of samples of a skipped update


@dataclass(frozen=True)
class Update:
    """An update that is queued on the device; ``Trainer.record`` waits for its results.

    The results of ``timing`` are the loss, summed over all ranks, the gradient norm before clipping, and with R3F the
    divergence, summed over all ranks.
    """

    step: int  # finished updates, this one included
    timing: Timing
    waited: float  # seconds of waiting for its batches
    learning_rate: float
    counts: Counts  # of all ranks
    metrics: Mapping[str, float]  # further ones of the unit
    batches: Sequence[tuple[list[Sample], Tensor]]  # samples and loss of each micro-batch of this rank


class Trainer:
    """A model, its optimizer and the number of finished updates; ``update`` runs the next one.

    Attributes:
        unit: unit of training.
        model: module with the trained weights; under FSDP each rank holds its shard of them.
        step: number of finished updates.
    """

    def __init__(
        self,
        unit: TrainUnit,
        model: Model,
        world: World,
        run: RunConfig,
        parallel: ParallelConfig,
        optimizer: OptimizerConfig,
        loss: LossConfig,
        peak_tflops: float | None = None,
    ) -> None:
        """Move ``model`` of the unit to this rank's device and wrap it as the sections of the recipe say.

        ``peak_tflops`` is the peak of one device, if known.
        """
        self.unit, self.world, self.peak_tflops = unit, world, peak_tflops
        self._run, self._parallel, self._loss, self._clip_norm = run, parallel, loss, optimizer.clip_norm
        self.model = model.to(world.device)
        apply_activation_checkpointing(self.model, run.activation_checkpointing)
        if run.compile:
            apply_compile(self.model)
        self._wrapped = apply_parallel(self.model, parallel, world, run.precision)
        self.optimizer = build_optimizer(self.model, optimizer)
        self.step = 0

    def update(self, batches: Batches, stop: bool = False) -> Update | None:
        """Queue the next update.

        Gradients are divided by the number of target tokens of the whole step, so that they do not depend on
        micro-batches, ranks or padding. If the loss or the gradient is not finite, the weights do not change; all ranks
        have the same loss and gradient, so they agree. If any rank asks to ``stop``, nothing is changed, and there is
        no update.
        """
        timing, begun = Timing(self.world.device), time.perf_counter()
        micro_batches = batches.step(self.step)
        waited = time.perf_counter() - begun
        stage = self.unit.stage_at(self.step)
        local_counts = self.unit.counts(self.model, micro_batches, stage)
        stopping, *counts = self.world.sum(stop, *astuple(local_counts))
        if stopping:
            return None
        totals = Counts(*map(int, counts))
        losses = self.gradients(stage, micro_batches, totals.target_tokens)
        loss = self._sum_ranks([each.plain for each in losses])
        divergences = [each.divergence for each in losses if each.divergence is not None]
        norm = self._clip()
        rate = self._change_weights(stage, torch.isfinite(norm) & torch.isfinite(loss))
        self.step += 1
        seen = [(_samples(batch), each.plain) for batch, each in zip(micro_batches, losses, strict=True)]
        timing.end(loss, norm, *([self._sum_ranks(divergences)] if divergences else []))
        return Update(self.step, timing, waited, rate, totals, self.unit.metrics(micro_batches), seen)

    def enter(self, stage: Stage) -> None:
        """Give the encoder the attention of ``stage``."""
        if stage.attention != self.model.encoder.pattern:
            apply_attention(self.model.encoder, stage.attention)

    def gradients(self, stage: Stage, batches: Sequence[Batch], targets: int = 1) -> list[Losses]:
        """Pass micro-batches forward and backward; the gradients are those of the sum over all ranks, by ``targets``.

        Returns the losses of each batch, summed over its target tokens, ``()``, without gradients.
        """
        self.enter(stage)
        self.model.train()
        losses, r3f = [], self._loss.r3f
        for number, batch in enumerate(batches):
            # The seed of dropout follows from the sample, so no random state has to be saved.
            torch.manual_seed(self._dropout_seed(stage, batch))
            with reduction_context(self._wrapped, self._parallel, last=number == len(batches) - 1):
                loss = self._pass(self._wrapped, batch, self._loss)
                # Gradients are averaged over ranks; multiplied by the number of ranks, they are summed.
                minimised = loss.minimised * (self.world.size / max(targets, 1))
                divergence = loss.divergence
                if r3f is not None and divergence is not None:
                    scale = self.world.size * r3f.weight / _count(r3f, stage, targets)
                    minimised, divergence = minimised + divergence * scale, divergence.detach()
                minimised.backward()
            losses.append(Losses(loss.minimised.detach(), loss.plain, divergence))
        return losses

    def _sum_ranks(self, values: list[Tensor]) -> Tensor:
        """Sum over micro-batches and ranks, ``()`` float64."""
        return self.world.sum_on_device(torch.stack(values).double().sum())

    def record(self, update: Update) -> dict[str, Any]:
        """Wait for an update and return its metrics; all ranks call this for every update, in order.

        Does not wait for updates that are queued after it. A skipped update has no loss, and lists its sequences under
        ``skipped``.
        """
        seconds, (loss, norm, *divergence) = update.timing.read()
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
            **update.metrics,
        }
        if (r3f := self._loss.r3f) and finite:
            counted = _count(r3f, self.unit.stage_at(update.step - 1), update.counts.target_tokens)
            record["r3f_divergence"] = divergence[0] / counted
        return record if finite else {**record, "skipped": self._suspects(update)}

    def loss(self, batch: Batch) -> Tensor:
        """Sum the cross-entropy over the target tokens of a batch, ``()``; dropout depends on the model's mode."""
        return self._pass(self.model, batch).plain

    @contextmanager
    def generating(self) -> Iterator[Seq2Seq]:
        """Context with the model, all its weights on this device, for generation in the precision of training.

        Sharded weights are gathered into a copy by all ranks together.
        """
        model: nn.Module = self.model
        try:
            if self._sharded:
                config = self.unit.stage_at(max(self.step - 1, 0)).model
                model = whole_copy(self.model, config).to(self.world.device)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            raise FarspanError(
                "evaluation.generation gathers the weights that FSDP shards, and the device lacks memory for them; "
                "remove the section, and run farspan generate on checkpoints of the run"
            ) from error
        assert isinstance(model, Seq2Seq)
        bf16 = self._run.precision == "bf16"
        with torch.autocast(self.world.device.type, torch.bfloat16) if bf16 else nullcontext():
            yield model

    def _pass(self, model: nn.Module, batch: Batch, loss: LossConfig = CROSS_ENTROPY) -> Losses:
        """Sum the losses of a micro-batch over its target tokens; ``model`` may be wrapped by DDP."""
        with self._precision():
            return model(**batch.to(self.world.device).inputs, loss=loss)

    def _precision(self) -> AbstractContextManager[Any]:
        if self._run.precision == "fp32" or self._sharded:  # FSDP computes in bfloat16 by its own policy
            return nullcontext()
        return torch.autocast(self.world.device.type, torch.bfloat16)

    @property
    def _sharded(self) -> bool:
        """True if each rank holds only a part of the weights."""
        return self.world.size > 1 and self._parallel.mode != "ddp"

    def _clip(self) -> Tensor:
        """Clip the gradients to ``optimizer.clip_norm`` and return their norm before clipping."""
        for parameter in self.model.parameters():
            if parameter.grad is None:  # unused on this rank, but perhaps not on others
                parameter.grad = torch.zeros_like(parameter)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._clip_norm or math.inf)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    def _change_weights(self, stage: Stage, finite: Tensor) -> float:
        """Run the optimizer's step if ``finite``, ``()`` bool; drop the gradients; return the learning rate."""
        rate = stage.learning_rate_at(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        if self.optimizer.defaults.get("fused"):
            # The fused kernel reads this on the device and skips the step, so the host need not wait.
            self.optimizer.found_inf = finite.logical_not().float()  # type: ignore[attr-defined]
            self.optimizer.step()
        elif finite.item():
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return rate

    def _dropout_seed(self, stage: Stage, batch: Batch) -> int:
        names = {"stage": stage.first_step, "sample": int(batch.samples[0])}
        key = make_key(self._run.seed, "dropout", names)
        return int.from_bytes(key[:8], "little", signed=True)

    def _suspects(self, update: Update) -> list[Sample]:
        """Samples of the micro-batches of all ranks whose loss is not finite; all samples if only gradients are not.

        All ranks call this together.
        """
        own = [[bool(loss.isfinite()), samples] for samples, loss in update.batches]
        everyone = [batch for rank in self.world.gather(own) for batch in rank]
        bad = [samples for finite, samples in everyone if not finite] or [samples for _, samples in everyone]
        # A batch without targets repeats the samples of another.
        suspects = {sample["number"]: sample for samples in bad for sample in samples}
        origins = self.unit.origins(update.step - 1, np.array(list(suspects)))
        for sample, origin in zip(suspects.values(), origins, strict=True):
            sample["origin"] = origin
        return list(suspects.values())


def _count(r3f: R3FConfig, stage: Stage, targets: int) -> int:
    """Number of sentences or target tokens of an update, by which the divergence of R3F is divided."""
    return max(targets, 1) if r3f.per == "token" else stage.batch_size


def _samples(batch: Batch) -> list[Sample]:
    ids = (row.tobytes().hex() for row in batch.sequence_ids)
    return [{"number": int(number), "sequence_id": name} for number, name in zip(batch.samples, ids, strict=True)]
