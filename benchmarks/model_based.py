"""Scoring candidate spans of long sequences against the scorer's own encoder: tokens/s, the head at asked positions.

Both sides run the same model on the same masked rows. The bare forward has its tensors ready; the scorer cuts rows into
windows, frames them and puts losses back in their places; the objective also draws the spans, hides them and chooses
the hardest. Losses of both sides are compared first.

The model has the shape of BART-LS's scorer (6 layers of RoBERTa-base, attention in blocks of 512) and random weights:
one sequence takes tens of seconds on a core. ``--quick`` is a model that takes a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from report import HEADINGS, Comparison, arguments, comparison_rows, in_turn, machine, publish
from span_masking import OWNED, VOCAB, one_document_rows
from torch import Tensor

from corpora.keyed import make_key
from corpora.schemas.sequences import SequenceBatch
from objectives.api.examples import IGNORED
from objectives.api.protocol import Tools, load_objective
from objectives.api.special_tokens import MASK, SpecialTokens
from trainer.model.build import build_model
from trainer.model.config import EncoderConfig, ModelConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import FeedForwardConfig
from trainer.model.masked_lm import MaskedLM
from trainer.model.patterns.block import Block
from trainer.model.positions import Learned
from trainer.scorer.inference import pin_threads
from trainer.scorer.models import FoundModel
from trainer.scorer.scorers import MaskedLMScorer

ROBERTA_VOCAB = 50_265


class KnownTokenizer:
    """All that the objective asks of a tokenizer."""

    fingerprint = "made"


class Recording(MaskedLMScorer):
    """Keeps what it was asked last, so that the bare forward gets the same."""

    def losses(self, ids: np.ndarray, lengths: np.ndarray, labels: np.ndarray) -> np.ndarray:
        self.asked = ids, lengths, labels
        return super().losses(ids, lengths, labels)


class Sides:
    """The scorer, the whole objective and the bare forward on the same rows."""

    def __init__(self, model: MaskedLM, special: SpecialTokens, rows: SequenceBatch, device: str, threads: int) -> None:
        self.rows, self.threads = rows, threads
        embedded: Any = model.encoder.embedded
        positions = len(embedded.positions.weight)
        found = FoundModel("made", "made", "made", special, positions, lambda: model)
        self.scorer = Recording(found, device, "bfloat16" if device == "cuda" else "float32", threads)
        tools = Tools(KnownTokenizer(), self.scorer)  # type: ignore[arg-type]
        self.objective = load_objective("model_based", "bart_ls").with_tools(tools)  # type: ignore[attr-defined]
        self.mask()
        ids, _, labels = self.scorer.asked
        self.device = next(self.scorer.model.parameters()).device
        self.ids, self.labels = (torch.from_numpy(x).long().to(self.device) for x in (ids, labels))

    def mask(self) -> None:
        self.objective.mask(self.rows, make_key(0, "benchmark"))

    def score(self) -> np.ndarray:
        return self.scorer.losses(*self.scorer.asked)

    def bare(self) -> Tensor:
        """``(asked,)`` losses, row by row; on a GPU all rows at once."""
        model, sizes = self.scorer.model, {"cpu": (1, 512), "cuda": (len(self.ids), 8192)}[self.device.type]
        losses = []
        with pin_threads(self.threads), torch.inference_mode():
            for ids, labels in zip(self.ids.split(sizes[0]), self.labels.split(sizes[0]), strict=True):
                asked = labels != IGNORED
                hidden, wanted = model.encode(ids)[asked].split(sizes[1]), labels[asked].split(sizes[1])
                for part, want in zip(hidden, wanted, strict=True):
                    losses.append(F.cross_entropy(model.logits(part).float(), want, reduction="none"))
            if self.device.type == "cuda":
                torch.cuda.synchronize()
        return torch.cat(losses)

    def check(self) -> None:
        """Equal losses in the same places."""
        found = self.score()[self.scorer.asked[2] != IGNORED]
        tolerance = 1e-4 if self.device.type == "cpu" else 2e-2
        np.testing.assert_allclose(found, self.bare().cpu().numpy(), rtol=tolerance, atol=tolerance)


def scorer_model(length: int, quick: bool) -> tuple[MaskedLM, SpecialTokens]:
    """A random model that reads ``length`` positions."""
    width, layers, vocab = (128, 2, VOCAB) if quick else (768, 6, ROBERTA_VOCAB)
    special = SpecialTokens.append(vocab, OWNED, [MASK])
    encoder = EncoderConfig(layers=layers, positions=Learned(length), attention=Block(512))
    config = ModelConfig(
        width=width,
        heads=HeadsConfig(count=width // 64),
        feed_forward=FeedForwardConfig(width=4 * width),
        encoder=encoder,
        dropout=0.0,
    )
    model = build_model(config, special.vocab_size, seed=0)
    assert isinstance(model, MaskedLM)
    return model.eval(), special


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=3)
    parser.add_argument("--batch", type=int, default=1, help="sequences in a block")
    parser.add_argument("--length", type=int, default=16_384, help="positions of each, begin and end included")
    parser.add_argument("--threads", type=int, default=1, help="on a processor")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="2 layers of width 128 instead of 6 of 768")
    options = parser.parse_args()
    environment = machine("torch", "numpy")
    model, special = scorer_model(options.length, options.quick)
    # 2 positions are those of begin and end
    tokens = np.random.default_rng(0).integers(3, VOCAB, (options.batch, options.length - 2)).astype(np.uint16)
    sides = Sides(model, special, one_document_rows(tokens), options.device, options.threads)
    sides.check()
    runs: dict[str, Callable[[], object]] = {"score": sides.score, "mask": sides.mask, "bare": sides.bare}
    seconds = in_turn(runs, options.rounds)
    rates = {name: [options.batch * options.length / second for second in values] for name, values in seconds.items()}
    bare = "encoder forward, tensors ready"
    comparisons = [
        Comparison("scorer", bare, "tokens/s", rates["score"], rates["bare"], 0.9),
        Comparison("objective: draw, score, choose", bare, "tokens/s", rates["mask"], rates["bare"], 0.9),
    ]
    shape = f"{len(model.encoder.layers)} layers of width {model.tokens.embedding_dim}"
    publish(
        f"Model-based scoring, {options.batch} sequences of {options.length:,} positions, {shape}, blocks of 512, "
        f"{options.device}, {options.threads} threads",
        HEADINGS,
        comparison_rows(comparisons),
        environment,
        options.json,
        {"batch": options.batch, "length": options.length, "tokens_per_second": rates},
    )


if __name__ == "__main__":
    main()
