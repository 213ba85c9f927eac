"""Forward and backward of the encoder-decoders against Hugging Face's, and against block attention by einsum.

Both sides have the same weights, random, and read the same tokens; their losses are compared first. One run is the loss
of one sequence and its gradients for all weights, in float32 without dropout, recomputation or padding. Times are taken
in turn in one process. Memory is that of a process of its own: the peak of resident memory during a run less what was
resident before it, gradients included, after a shorter run has loaded all code. Longformer's first position is global.

The sizes are small (4 + 4 layers of width 256; T5Gemma 2 has 6 + 6, so that one is full), so ratios are what matters;
``--length`` and ``--target`` change how much is read and written. Hugging Face has no BART-LS: there the peer is
farspan's model whose two encoder attentions are written with einsum, their scores held in memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import transformers
from report import arguments, in_turn, machine, publish
from torch import Tensor, nn

from trainer.conversion.family import family_of
from trainer.conversion.hugging_face import split_carried
from trainer.conversion.names import load_state
from trainer.model.build import build_model
from trainer.model.config import ModelConfig
from trainer.model.context import Context
from trainer.model.layers.attention import SelfAttention
from trainer.model.layers.pooled import PooledAttention, Pooling
from trainer.model.patterns.block import Block
from trainer.model.seq2seq import Seq2Seq

WIDTH, HEADS, INNER, LAYERS, VOCAB = 256, 4, 1024, 4, 4096
GEMMA_LAYERS = 6
FIRST_TOKEN = 3
"""Ids below it mean something to one peer or another: begin, end, padding."""


@dataclass(frozen=True)
class Case:
    """Two models that do the same work."""

    name: str  # for the command line and the table
    peer: str  # what ours is compared with
    speed: dict[int, float]  # promised ratios of time by source length
    memory: float | None = None  # promised ratio of ours to the peer's peak, None where nothing is


CASES = (
    Case("window", "LED, window 512", {4096: 2.2, 16_384: 3.3}, 0.8),
    Case("staggered", "PEGASUS-X, blocks of 512 + 128 globals", {4096: 1.1}, 0.8),
    Case("tglobal", "LongT5, radius 127 + blocks of 16", {4096: 1.05}, 0.8),
    Case("block + pooling", "einsum, blocks of 1,024 + pooling", {}),
    Case("full", "BART, full attention", {}),
    Case("layered", "T5Gemma 2, windows of 512, full in one of 6 layers", {}),
    Case("span", "T5Gemma 2, windows of 512 alone", {}),
)


class Batch(NamedTuple):
    """One sequence: ``(1, S)``, ``(1, T)`` and ``(1, T)`` int64; ``(1, S)`` bool or None."""

    source: Tensor
    decoder: Tensor
    labels: Tensor
    globals: Tensor | None


def make_batch(case: Case, length: int, target: int) -> Batch:
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(FIRST_TOKEN, VOCAB, (1, length), generator=generator)
    written = torch.randint(FIRST_TOKEN, VOCAB, (1, target + 1), generator=generator)
    chosen = torch.arange(length)[None] == 0 if case.name == "window" else None
    return Batch(source, written[:, :-1], written[:, 1:], chosen)


def their_config(case: Case, length: int, target: int) -> transformers.PretrainedConfig:
    """Of Hugging Face, without dropout; for ``block + pooling`` that of the BART that it begins as."""
    sizes: dict[str, Any] = {"vocab_size": VOCAB, "d_model": WIDTH, "pad_token_id": 1, "decoder_start_token_id": 2}
    if case.name == "tglobal":
        sizes |= {"d_kv": WIDTH // HEADS, "d_ff": INNER, "num_heads": HEADS, "num_layers": LAYERS, "dropout_rate": 0.0}
        return transformers.LongT5Config(
            **sizes, feed_forward_proj="gated-gelu", encoder_attention_type="transient-global"
        )
    if case.name in ("layered", "span"):
        local, full = ({"rope_type": "default", "rope_theta": base} for base in (1e4, 1e6))
        stack = {
            "vocab_size": VOCAB, "hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": GEMMA_LAYERS,
            "num_attention_heads": HEADS, "num_key_value_heads": 1, "head_dim": WIDTH // HEADS, "sliding_window": 512,
            "rope_parameters": {"full_attention": full, "sliding_attention": local},
        }  # fmt: skip
        if case.name == "span":
            stack["layer_types"] = ["sliding_attention"] * GEMMA_LAYERS
        vision = {"model_type": "siglip_vision_model", "num_hidden_layers": 0, "vision_use_head": False}
        return transformers.T5Gemma2Config(encoder={"text_config": stack, "vision_config": vision}, decoder=stack)
    sizes |= {"dropout": 0.0, "attention_dropout": 0.0}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": LAYERS, f"{side}_attention_heads": HEADS, f"{side}_ffn_dim": INNER}
    if case.name == "window":
        reach = -(-length // 512) * 512  # theirs pads to whole windows
        sizes |= {"max_encoder_position_embeddings": reach, "max_decoder_position_embeddings": target}
        return transformers.LEDConfig(**sizes, attention_window=512)
    sizes |= {"max_position_embeddings": max(length, target)}
    if case.name == "staggered":
        sizes |= {"num_global_tokens": 128, "block_size": 512}
        return transformers.PegasusXConfig(**sizes, activation_function="relu")
    return transformers.BartConfig(**sizes)


def our_config(case: Case, theirs: transformers.PretrainedConfig) -> ModelConfig:
    values = theirs.to_dict()
    config = family_of(values["model_type"]).read_config(values)
    if case.name == "block + pooling":
        encoder = replace(config.encoder, attention=Block(1024), pooling=Pooling(layers=LAYERS, reference_init=True))
        config = replace(config, encoder=encoder)
    return config


def make_ours(case: Case, length: int, target: int) -> Seq2Seq:
    model = build_model(our_config(case, their_config(case, length, target)), VOCAB, seed=0)
    assert isinstance(model, Seq2Seq)
    return model.train()


def make_peer(case: Case, length: int, target: int) -> nn.Module:
    if case.name == "block + pooling":
        return with_einsum(make_ours(case, length, target))
    torch.manual_seed(0)
    model = transformers.AutoModelForSeq2SeqLM.from_config(their_config(case, length, target))
    model.config.use_cache = False
    return model.train()


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    """Mean cross-entropy."""
    if isinstance(model, Seq2Seq):
        summed = model(batch.source, batch.decoder, batch.labels, global_positions=batch.globals)
        return summed.minimised / batch.labels.numel()
    extra = {} if batch.globals is None else {"global_attention_mask": batch.globals.long()}
    return model(input_ids=batch.source, decoder_input_ids=batch.decoder, labels=batch.labels, **extra).loss


def run(model: nn.Module, batch: Batch) -> None:
    """The loss and the gradients of all weights."""
    model.zero_grad()
    loss_of(model, batch).backward()


def check(case: Case, ours: Seq2Seq, peer: nn.Module, batch: Batch) -> None:
    """Give ours the peer's weights; equal losses."""
    if isinstance(peer, Seq2Seq):
        return torch.testing.assert_close(loss_of(ours, batch), loss_of(peer, batch), rtol=1e-4, atol=1e-4)
    their: Any = peer.config
    config, family = our_config(case, their), family_of(their.model_type)
    stored, _, _ = split_carried(family, peer.state_dict(), their.to_dict())
    ours.load_state_dict(load_state(family.name_map(config), stored, ignored=family.IGNORED))
    torch.testing.assert_close(loss_of(ours, batch), loss_of(peer, batch), rtol=1e-4, atol=1e-4)


class EinsumBlocks(nn.Module):
    """Block attention with its scores in memory: ``(B, n, H, W, W)``."""

    def __init__(self, layer: SelfAttention) -> None:
        super().__init__()
        assert isinstance(layer.pattern, Block)
        self.qkv, self.out, self.heads, self.size = layer.qkv, layer.out, layer.heads, layer.pattern.size

    def forward(self, x: Tensor, context: Context) -> Tensor:
        length = x.shape[1]
        q, k, v = self.qkv(x).chunk(3, -1)
        # (B, L, d) -> (B, n, W, H, D), the last block padded
        rest = -length % self.size
        q, k, v = (
            F.pad(part, (0, 0, 0, rest)).unflatten(1, (-1, self.size)).unflatten(-1, (self.heads, -1))
            for part in (q, k, v)
        )
        scores = torch.einsum("bnqhd,bnkhd->bnhqk", q * q.shape[-1] ** -0.5, k)
        real = (torch.arange(length + rest) < length).view(-1, 1, 1, self.size)  # (n, 1, 1, W)
        weights = scores.masked_fill(~real, float("-inf")).softmax(-1)
        mixed = torch.einsum("bnhqk,bnkhd->bnqhd", weights, v)
        return self.out(mixed.flatten(1, 2)[:, :length].flatten(2))


class EinsumPooled(nn.Module):
    """Pooled attention with its scores in memory, ``(B, H, L, P)``, on averages of projected keys and values."""

    def __init__(self, layer: PooledAttention) -> None:
        super().__init__()
        self.q, self.kv, self.out, self.heads, self.pooling = layer.q, layer.kv, layer.out, layer.heads, layer.pooling

    def forward(self, x: Tensor, context: Context) -> Tensor:
        window = (self.pooling.kernel, self.pooling.stride, self.pooling.padding)
        pooled = F.avg_pool1d(self.kv(x).transpose(1, 2), *window, count_include_pad=False).transpose(1, 2)
        q = self.q(x).unflatten(-1, (self.heads, -1))
        k, v = pooled.unflatten(-1, (2, self.heads, -1)).unbind(2)
        scores = torch.einsum("bqhd,bkhd->bhqk", q * q.shape[-1] ** -0.5, k)
        return self.out(torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v).flatten(2))


def with_einsum(model: Seq2Seq) -> Seq2Seq:
    """The same model, its encoder's attentions written plainly."""
    layer: Any
    for layer in model.encoder.layers:
        layer.attention, layer.pooling = EinsumBlocks(layer.attention), EinsumPooled(layer.pooling)
    return model


SIDES: dict[str, Callable[[Case, int, int], nn.Module]] = {"ours": make_ours, "peer": make_peer}


def peak_of_run(case: Case, side: str, length: int, target: int) -> int:
    """Bytes that a run of this process adds to its resident memory at most."""
    model = SIDES[side](case, length, target)
    run(model, make_batch(case, min(length, 1024), min(target, 64)))
    model.zero_grad()
    batch = make_batch(case, length, target)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak starts anew from what is resident now
    before = resident("VmRSS")
    run(model, batch)
    return resident("VmHWM") - before


def resident(field: str, process: int | str = "self") -> int:
    """Bytes of a field of a process's status, such as ``VmRSS``; 0 once it has ended."""
    with open(f"/proc/{process}/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields.get(field, "0").split()[0]) << 10


def measured_peak(case: Case, side: str, length: int, target: int, threads: int) -> int:
    """``peak_of_run`` in a process of its own."""
    options = ["--length", str(length), "--target", str(target), "--threads", str(threads)]
    command = [sys.executable, os.path.abspath(__file__), "--cases", case.name, "--peak-of", side, *options]
    # What is freed goes back to the system at once, so that the peak is of what is in use.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(1 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 20)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr[-3000:]}")
    return int(json.loads(done.stdout)["peak"])


HEADINGS = ("farspan", "peer", "seconds", "peer's", "faster", "goal", "peak MiB", "peer's", "of the peer's", "goal")


def measure(case: Case, length: int, target: int, threads: int, rounds: int) -> dict[str, Any]:
    """Seconds of each round and bytes of both sides."""
    peaks = {side: measured_peak(case, side, length, target, threads) for side in SIDES}
    models = {side: make(case, length, target) for side, make in SIDES.items()}
    batch = make_batch(case, length, target)
    ours = models["ours"]
    assert isinstance(ours, Seq2Seq)
    check(case, ours, models["peer"], batch)
    seconds = in_turn({side: lambda model=model: run(model, batch) for side, model in models.items()}, rounds)
    return {"seconds": seconds, "peak": peaks}


def cells(case: Case, length: int, measured: dict[str, Any]) -> tuple[str, ...]:
    seconds, peak = measured["seconds"], measured["peak"]
    ratios = sorted(peer / ours for ours, peer in zip(seconds["ours"], seconds["peer"], strict=True))
    ours, peer = (sorted(seconds[side])[len(ratios) // 2] for side in SIDES)
    goal = case.speed.get(length)
    return (
        case.name,
        case.peer,
        f"{ours:.2f}",
        f"{peer:.2f}",
        f"{ratios[len(ratios) // 2]:.2f}x ({ratios[0]:.2f}..{ratios[-1]:.2f})",
        "" if goal is None else f"{goal:g}x",
        f"{peak['ours'] / 2**20:,.0f}",
        f"{peak['peer'] / 2**20:,.0f}",
        f"{peak['ours'] / peak['peer']:.2f}",
        "" if case.memory is None else f"{case.memory:g}",
    )


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=5)
    names = [case.name for case in CASES]
    parser.add_argument("--length", type=int, default=4096, help="tokens of the source")
    parser.add_argument("--target", type=int, default=256, help="tokens of the target; 1024 with a source of 16384")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cases", nargs="+", choices=names, default=names)
    parser.add_argument("--peak-of", choices=SIDES, help="only print the peak of one side of one case, in bytes")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(options.threads)
    chosen = [case for case in CASES if case.name in options.cases]
    size = (options.length, options.target)
    if options.peak_of:
        (case,) = chosen
        print(json.dumps({"peak": peak_of_run(case, options.peak_of, *size)}))
        return
    measured = {case.name: measure(case, *size, options.threads, options.rounds) for case in chosen}
    publish(
        f"Forward and backward of {size[0]:,} source and {size[1]:,} target tokens, {LAYERS} + {LAYERS} layers of "
        f"width {WIDTH}, float32, {options.threads} threads",
        HEADINGS,
        [cells(case, options.length, measured[case.name]) for case in chosen],
        machine("torch", "transformers"),
        options.json,
        {"length": size[0], "target": size[1], "threads": options.threads, "cases": measured},
    )


if __name__ == "__main__":
    main()
