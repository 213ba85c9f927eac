"""Short pairs packed into rows against batches padded to their longest pair: examples of fine-tuning per second.

Both sides pass the same examples forward and backward through the same model, those of ``attention_models.py``, and
have equal losses. Batches have about equally many positions: eight pairs, or one row of 1,024 source and 128 target
positions. Lengths are log-normal: sources with a median of 160 and sigma 0.8, targets with 24 and 0.6. Rates are per
second of the processors.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch
import transformers
from attention_models import CASES, FIRST_TOKEN, VOCAB, Case, make_ours
from report import HEADINGS, Comparison, arguments, comparison_rows, machine, publish

from corpora.keyed import make_key
from objectives.api.examples import Examples
from objectives.api.special_tokens import SpecialTokens
from trainer.data.batch import Batch, collate
from trainer.data.config import DataConfig
from trainer.data.order import permute
from trainer.data.packed import PackedPairs
from trainer.model.seq2seq import Seq2Seq

SOURCE, TARGET, PAIRS = 1024, 128, 8
CASE_NAMES = ("full", "tglobal", "window")


class ShortPairs:
    """Random examples of log-normal lengths, with what ``PackedPairs`` asks of pairs."""

    cached, fingerprint, described = (), "short pairs", "short pairs"
    tokenizer_fingerprint, tokenizer_size = "none", VOCAB
    special = SpecialTokens.append(VOCAB, {"<pad>": 0, "<bos>": 1, "<eos>": 2}, sentinels=0)

    def __init__(self, count: int) -> None:
        draw = np.random.default_rng(0)
        drawn = [draw.lognormal(np.log(median), sigma, count) for median, sigma in ((160, 0.8), (24, 0.6))]
        limits = np.array([[SOURCE], [TARGET]])
        self._lengths = np.clip(np.array(drawn).astype(np.int64), 8, limits)
        self._ids = [draw.integers(FIRST_TOKEN, VOCAB, (count, limit), dtype=np.int32) for limit in (SOURCE, TARGET)]

    def lengths(self) -> np.ndarray:
        return self._lengths

    def examples(self, indices: np.ndarray, epochs: np.ndarray | None = None) -> Examples:
        source, target = (ids[indices] for ids in self._ids)
        lengths = self._lengths[:, indices].astype(np.int32)
        return Examples(np.zeros((len(indices), 16), np.uint8), source, lengths[0], target, lengths[1])


def make_batches(count: int) -> tuple[PackedPairs, dict[str, list[Batch]]]:
    """Make the batches of both sides."""
    pairs, data = ShortPairs(count), DataConfig(source_length=SOURCE, target_length=TARGET, source_multiple=16)
    packed = PackedPairs(pairs, data)  # type: ignore[arg-type]
    order = permute(np.arange(count), count, make_key(0, "pairs"))
    cuts = [order[begin : begin + PAIRS] for begin in range(0, count, PAIRS)]
    plain = [collate(pairs.examples(cut), cut, data, pairs.special) for cut in cuts]
    rows = [np.array([row]) for row in range(len(packed))]
    return packed, {
        "packed": [collate(packed.examples(row), row, data, packed.special) for row in rows],
        "padded": plain,
    }


def run(model: Seq2Seq, batches: Sequence[Batch]) -> tuple[float, float]:
    """Pass batches forward and backward; returns the summed loss and the seconds of the processors."""
    start, total = time.process_time(), 0.0
    model.zero_grad()
    for batch in batches:
        loss = model(**batch.inputs).minimised
        loss.backward()
        total += loss.item()
    return total, time.process_time() - start


def compare(case: Case, batches: dict[str, list[Batch]], count: int, rounds: int) -> Comparison:
    model = make_ours(case, SOURCE, TARGET)
    losses = {side: run(model, some)[0] for side, some in batches.items()}
    if abs(losses["packed"] - losses["padded"]) > 1e-4 * losses["padded"]:
        raise SystemExit(f"{case.name}: the losses are {losses}")
    rates: dict[str, list[float]] = {side: [] for side in batches}
    for _ in range(rounds):
        for side, some in batches.items():
            rates[side].append(count / run(model, some)[1])
    return Comparison(f"{case.name}, packed", f"batches of {PAIRS}", "examples/s", rates["packed"], rates["padded"])


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=3)
    parser.add_argument("--pairs", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cases", nargs="+", choices=CASE_NAMES, default=list(CASE_NAMES))
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(options.threads)
    packed, batches = make_batches(options.pairs)
    shares = packed.padding(PAIRS)
    by_name = {case.name: case for case in CASES}
    comparisons = [compare(by_name[name], batches, options.pairs, options.rounds) for name in options.cases]
    publish(
        f"{options.pairs} short pairs in {len(packed)} rows of {SOURCE:,} + {TARGET}; padding {shares[0, 0]:.0%} of "
        f"source and {shares[0, 1]:.0%} of target positions, {shares[1, 0]:.0%} and {shares[1, 1]:.0%} in batches of "
        f"{PAIRS}",
        HEADINGS,
        comparison_rows(comparisons),
        machine("torch"),
        options.json,
        {"padding": shares.tolist(), "cases": [vars(one) for one in comparisons]},
    )


if __name__ == "__main__":
    main()
