"""Beam search of a LED against transformers' ``generate``: equal weights, equal settings, equal texts.

LED-base's shape by default (6 + 6 layers of width 768, 50,265 ids), random weights, one unpadded source, float32.
The source is encoded once, and both sides generate the same number of tokens from its states; their texts are compared.
A token's time is that between two steps of the decoder; the first two steps are not counted, so that neither is the
projection of the cross-attention's keys and values, which transformers makes once per beam. Runs are taken in turn in
one process.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
import transformers
from report import HEADINGS, Comparison, arguments, comparison_rows, machine, publish
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from trainer.conversion.family import family_of
from trainer.conversion.names import load_state
from trainer.generation import generate as search
from trainer.generation.cached_decoder import CachedDecoder
from trainer.generation.config import DecoderIds, GenerationConfig, Sources
from trainer.model.build import make_model
from trainer.model.decoder import EncoderOutput
from trainer.model.seq2seq import Seq2Seq

VOCAB, FIRST_TOKEN, WINDOW = 50_265, 3, 1024
IDS = DecoderIds(start=2, end=2, pad=1)
GOALS = {4096: 2.0, 16_384: 5.0}
UNCOUNTED = 2


@dataclass(frozen=True)
class Side:
    """Results of a run."""

    tokens: list[int]  # of the text
    seconds: list[float]  # of each counted token
    cross_bytes: int  # of the cross-attention's keys and values


class Clock(transformers.LogitsProcessor):
    """Note the time of every step; no padding, and the end after ``tokens``, as ours."""

    def __init__(self, tokens: int) -> None:
        self.tokens, self.times = tokens, list[float]()

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.times.append(time.perf_counter())
        if len(self.times) > self.tokens:
            end = scores[:, IDS.end : IDS.end + 1]
            return torch.full_like(scores, -torch.inf).index_copy(1, torch.tensor([IDS.end]), end)
        return scores.index_fill(1, torch.tensor([IDS.pad]), -torch.inf)

    @property
    def seconds(self) -> list[float]:
        pairs = zip(self.times[:-1], self.times[1:], strict=True)
        return [after - before for before, after in pairs][UNCOUNTED:]


def make_models(width: int, layers: int, length: int, tokens: int) -> tuple[Any, Seq2Seq]:
    """LED of transformers with random weights, and ours with the same."""
    sizes: dict[str, Any] = {"vocab_size": VOCAB, "d_model": width, "dropout": 0.0, "attention_dropout": 0.0}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": layers, f"{side}_attention_heads": width // 64, f"{side}_ffn_dim": 4 * width}
    reach = -(-length // WINDOW) * WINDOW
    config = transformers.LEDConfig(
        **sizes, attention_window=WINDOW, max_encoder_position_embeddings=reach,
        max_decoder_position_embeddings=tokens + 2,
    )  # fmt: skip
    torch.manual_seed(0)
    theirs = transformers.LEDForConditionalGeneration(config).eval()
    theirs.generation_config.forced_eos_token_id = None
    values = config.to_dict()
    family, ours = family_of("led"), make_model(family_of("led").read_config(values), VOCAB)
    assert isinstance(ours, Seq2Seq)
    ours.load_state_dict(
        load_state(family.name_map(family.read_config(values)), theirs.state_dict(), ignored=family.IGNORED)
    )
    return theirs, ours.eval()


def run_ours(model: Seq2Seq, states: Tensor, config: GenerationConfig) -> Side:
    clock, step, cross_bytes = Clock(config.max_tokens), CachedDecoder.step, 0

    def timed(decoder: CachedDecoder, *arguments: Any) -> Tensor:
        nonlocal cross_bytes
        logits = step(decoder, *arguments)
        clock.times.append(time.perf_counter())
        cached = [keys for group in decoder.cross.groups for layer in group.keys for keys in layer.values()]
        cross_bytes = sum(keys.k.nbytes + keys.v.nbytes for keys in cached)
        return logits

    sources = Sources(source_ids=torch.zeros(states.shape[:2], dtype=torch.int64))
    with patch.object(CachedDecoder, "step", timed), patch.object(model, "encode", lambda *_: EncoderOutput(states)):
        found = search.generate(model, sources, config, IDS)
    return Side(found.tokens[0].tolist(), clock.seconds, cross_bytes)


def run_theirs(model: Any, states: Tensor, config: GenerationConfig) -> Side:
    clock = Clock(config.max_tokens)
    found = model.generate(
        encoder_outputs=BaseModelOutput(last_hidden_state=states), num_beams=config.beams,
        length_penalty=config.length_penalty, early_stopping=True, min_new_tokens=config.min_tokens,
        max_new_tokens=config.max_tokens + 1, no_repeat_ngram_size=config.no_repeat_ngram, do_sample=False,
        logits_processor=[clock], return_dict_in_generate=True,
    )  # fmt: skip
    layers = found.past_key_values.cross_attention_cache.layers
    return Side(
        found.sequences[0, 1 : 1 + config.max_tokens].tolist(),
        clock.seconds,
        sum(layer.keys.nbytes + layer.values.nbytes for layer in layers),
    )


def compare(options: argparse.Namespace, length: int) -> tuple[Comparison, dict[str, Any]]:
    """Measure one length of the source."""
    config = GenerationConfig(
        beams=options.beams, min_tokens=options.tokens, max_tokens=options.tokens, no_repeat_ngram=options.ngram
    )
    theirs, ours = make_models(options.width, options.layers, length, options.tokens)
    ids = torch.randint(FIRST_TOKEN, VOCAB, (1, length), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        states = ours.encode(ids, global_positions=torch.arange(length)[None] == 0).states
    rounds = [(run_ours(ours, states, config), run_theirs(theirs, states, config)) for _ in range(options.rounds)]
    for own, other in rounds:
        if own.tokens != other.tokens:
            raise SystemExit(f"different texts: {own.tokens} and {other.tokens}")
    seconds = [[statistics.median(side.seconds) for side in sides] for sides in rounds]
    own_bytes, their_bytes = (side.cross_bytes for side in rounds[0])
    comparison = Comparison(
        f"{length:,} tokens, cross cache {own_bytes / 2**20:,.0f} MiB",
        f"generate, {their_bytes / 2**20:,.0f} MiB",
        "tokens/min",
        [60 / own for own, _ in seconds],
        [60 / other for _, other in seconds],
        GOALS.get(length),
    )
    return comparison, {"seconds": seconds, "cross_bytes": [own_bytes, their_bytes]}


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=3)
    parser.add_argument("--lengths", type=int, nargs="+", default=[4096, 16_384], help="tokens of the source")
    parser.add_argument("--tokens", type=int, default=16, help="tokens to generate")
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--ngram", type=int, default=3, help="length of n-grams that are not repeated")
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(options.threads)
    comparisons, measured = [], {}
    for length in options.lengths:
        comparison, measured[length] = compare(options, length)
        comparisons.append(comparison)
    publish(
        f"Beam search with {options.beams} beams, {options.layers} + {options.layers} layers of width {options.width}, "
        f"float32, {options.threads} threads",
        HEADINGS,
        comparison_rows(comparisons),
        machine("torch", "transformers"),
        options.json,
        {"tokens": options.tokens, "beams": options.beams, "lengths": measured},
    )


if __name__ == "__main__":
    main()
