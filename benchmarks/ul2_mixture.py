"""UL2's seven denoisers over long sequences on one core: draw, mask, source and target against a numpy collator.

The collator is written plainly after the paper's table: it draws a denoiser for each sequence, masks it as T5's
preprocessing does, and pads the batch. Both sides give the same numbers of tokens for each denoiser, which is checked.
"""

from __future__ import annotations

import one_thread  # isort: skip  (before numpy)

import numpy as np
from report import HEADINGS, Comparison, arguments, comparison_rows, in_turn, machine, publish
from span_masking import OWNED, VOCAB, one_document_rows, repeat
from t5_collators import t5_mask, t5_pair

from corpora.keyed import make_key
from objectives.api.protocol import CorpusFacts, load_objective
from objectives.api.special_tokens import END, PAD

DENOISERS = {
    "r3": (3, 0.15),
    "r8": (8, 0.15),
    "x3": (3, 0.5),
    "x8": (8, 0.5),
    "x64_15": (64, 0.15),
    "x64_50": (64, 0.5),
    "s": (None, 0.25),
}
CALLS = 10  # of farspan in a round


class Sides:
    """Both sides over the same ``(batch, length)`` tokens."""

    def __init__(self, batch: int, length: int) -> None:
        self.rng = np.random.default_rng(0)
        self.tokens = self.rng.integers(3, VOCAB, (batch, length)).astype(np.int32)
        self.rows = one_document_rows(self.tokens.astype(np.uint16))
        self.objective = load_objective("mixture", "ul2", {"target_length": None})
        self.special = self.objective.validate(CorpusFacts(VOCAB, OWNED, length + 2, length, 1))
        modes = {component["name"]: component["mode"] for component in self.objective.options["components"]}
        self.modes = {name: self.special[mode] for name, mode in modes.items()}
        self.keys = 0

    def farspan(self) -> tuple[np.ndarray, np.ndarray]:
        self.keys += 1
        masks = self.objective.mask(self.rows, make_key(self.keys, "benchmark"))
        examples = self.objective.render(self.rows, masks, self.special)
        return examples.source_ids, examples.target_ids

    def collator(self) -> tuple[np.ndarray, np.ndarray]:
        names = self.rng.choice(list(DENOISERS), len(self.tokens))
        pairs = [self.pair(row, name) for row, name in zip(self.tokens, names, strict=True)]
        return self.padded([source for source, _ in pairs]), self.padded([target for _, target in pairs])

    def pair(self, row: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Source and target of a sequence; S is one span, which T5's mask puts at the end."""
        mean, density = DENOISERS[name]
        mask = t5_mask(len(row), self.rng, density, mean or len(row) * density)
        source, target = t5_pair(row, mask, self.special.vocab_size, self.special[END])
        return np.append(np.int32(self.modes[name]), source), target

    def padded(self, sides: list[np.ndarray]) -> np.ndarray:
        out = np.full((len(sides), max(map(len, sides))), self.special[PAD], np.int32)
        for row, side in zip(out, sides, strict=True):
            row[: len(side)] = side
        return out

    def check(self) -> None:
        """Equal lengths for each denoiser."""
        masks = self.objective.mask(self.rows, make_key(0, "benchmark"))
        assert masks.components is not None
        lengths = zip(masks.components.to_pylist(), masks.source_lengths, masks.target_lengths, strict=True)
        for name, source, target in lengths:
            assert tuple(map(len, self.pair(self.tokens[0], name))) == (source, target), name


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=9)
    parser.add_argument("--batch", type=int, default=64, help="sequences in a block")
    parser.add_argument("--length", type=int, default=16_384, help="tokens of each")
    options = parser.parse_args()
    environment = machine("numpy", "numba")
    one_thread.take_one_core()
    sides = Sides(options.batch, options.length)
    sides.check()
    seconds = in_turn({"farspan": lambda: repeat(sides.farspan, CALLS), "collator": sides.collator}, options.rounds)
    million = options.batch * options.length / 1e6
    ours = [million * CALLS / second for second in seconds["farspan"]]
    theirs = [million / second for second in seconds["collator"]]
    comparison = Comparison("draw, mask, source, target", "UL2 in numpy", "Mtok/s", ours, theirs, 40)
    publish(
        f"UL2's seven denoisers, {options.batch} sequences of {options.length:,} tokens, one thread",
        HEADINGS,
        comparison_rows([comparison]),
        environment,
        options.json,
        {"million_tokens_per_second": {"farspan": ours, "collator": theirs}},
    )


if __name__ == "__main__":
    main()
