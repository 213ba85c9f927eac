"""One update after another."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from corpora.errors import FarspanError
from corpora.keyed import make_key
from trainer.data import Batch, Loader
from trainer.model.flops import forward_flops
from trainer.model.loss import Losses
from trainer.model.masked_lm import MaskedLM
from trainer.model.seq2seq import Seq2Seq
from trainer.optimizer import build_optimizer, learning_rate_factor
from trainer.recipe import Recipe

MAX_SKIPPED = 10
"""Updates in a row whose gradients may be NaN or infinite before the run stops."""


class Trainer:
    """Model, optimiser and the number of finished updates; ``update`` makes the next one.

    Attributes:
        step: finished updates; with the recipe and the data it determines everything that follows.
    """

    def __init__(self, model: Seq2Seq | MaskedLM, loader: Loader, recipe: Recipe, device: torch.device) -> None:
        self.model = model.to(device)
        self.loader, self.recipe, self.device = loader, recipe, device
        self.optimizer = build_optimizer(self.model, recipe.optimizer)
        self.step = 0
        self._skipped = 0

    def update(self) -> dict[str, Any]:
        """Make one update; returns its metrics.

        Every gradient is divided by the target tokens of the whole step, so that it depends on neither the
        micro-batches nor how full they are. Gradients that are not finite are thrown away and the update is skipped.

        Raises:
            FarspanError: ``MAX_SKIPPED`` updates in a row were skipped.
        """
        begin = time.perf_counter()
        batches = self.loader.step(self.step)
        targets = sum(batch.target_tokens for batch in batches)
        rate = self.recipe.optimizer.learning_rate * learning_rate_factor(
            self.step, self.recipe.run.steps, self.recipe.schedule
        )
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        losses = []
        for batch in batches:
            # Dropout belongs to the sample, not to what was drawn before it: nothing of it has to be saved.
            torch.manual_seed(self._dropout_seed(batch))
            loss = self._loss(batch, self.recipe.loss.label_smoothing)
            (loss.minimised / max(targets, 1)).backward()
            losses.append(loss.plain)
        clip = self.recipe.optimizer.clip_norm or math.inf
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), clip).item()
        total = torch.stack(losses).sum().item()
        finite = math.isfinite(norm) and math.isfinite(total)
        if finite:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        seconds = time.perf_counter() - begin
        record = {
            "step": self.step,
            "loss": total / max(targets, 1) if finite else None,
            "learning_rate": rate,
            "grad_norm": norm if finite else None,
            "source_tokens": sum(batch.source_tokens for batch in batches),
            "source_positions": sum(batch.source_ids.numel() for batch in batches),
            "target_tokens": targets,
            "target_positions": sum(batch.labels.numel() for batch in batches),
            "source_tokens_per_second": sum(batch.source_tokens for batch in batches) / seconds,
            "model_tflops_per_second": sum(self._flops(batch) for batch in batches) / seconds / 1e12,
            "seconds": seconds,
        }
        return record if self._count_skipped(finite) else {**record, "skipped": _suspects(batches, losses)}

    def evaluate(self, batches: Iterable[Batch]) -> float:
        """Mean cross-entropy a target token over ``batches``, without dropout."""
        self.model.eval()
        total, targets = 0.0, 0
        with torch.no_grad():
            for batch in batches:
                total += self._loss(batch).plain.item()
                targets += batch.target_tokens
        return total / max(targets, 1)

    def states(self) -> dict[str, Any]:
        """What a checkpoint keeps besides the step."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def restore(self, step: int, model: dict[str, Any], optimizer: dict[str, Any]) -> None:
        """Go on from a checkpoint of this run."""
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)
        self.step = step

    def _loss(self, batch: Batch, label_smoothing: float = 0.0) -> Losses:
        with self._precision():
            return self.model(**batch.to(self.device).inputs, label_smoothing=label_smoothing)

    def _precision(self) -> AbstractContextManager[Any]:
        if self.recipe.run.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)

    def _dropout_seed(self, batch: Batch) -> int:
        key = make_key(self.recipe.run.seed, "dropout", {"sample": int(batch.samples[0])})
        return int.from_bytes(key[:8], "little", signed=True)

    def _flops(self, batch: Batch) -> int:
        """Of forward and backward, which is twice a forward; what is computed again is not counted."""
        model, (rows, source) = self.recipe.model, batch.source_ids.shape
        target = batch.labels.shape[1] if model.decoder else batch.target_tokens // rows
        return 3 * rows * forward_flops(model, self.model.tokens.num_embeddings, source, target)

    def _count_skipped(self, finite: bool) -> bool:
        self._skipped = 0 if finite else self._skipped + 1
        if self._skipped >= MAX_SKIPPED:
            raise FarspanError(
                f"{MAX_SKIPPED} updates in a row, up to step {self.step}, had gradients that are not finite; "
                "metrics.jsonl names their sequences; lower optimizer.learning_rate or set run.precision to fp32"
            )
        return finite


def _suspects(batches: list[Batch], losses: list[Tensor]) -> list[str]:
    """Sequence ids of the micro-batches whose loss is not finite; of all, where only gradients are not."""
    bad = [batch for batch, loss in zip(batches, losses, strict=True) if not loss.isfinite()]
    return [row.tobytes().hex() for batch in bad or batches for row in batch.sequence_ids]
