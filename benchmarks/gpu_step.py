"""One training step on a CUDA device at 16,384 source and 1,024 target tokens, and how much of the device it uses.

The share is of a measured ceiling: large bfloat16 matrix products in the same run. What a step computes is counted by
formula (``trainer.model.flops``), three forward passes. A step is forward, backward and AdamW on one sequence without
padding. Operations of one step are listed by the time that they take on the device.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
from report import arguments, machine, publish
from torch.profiler import ProfilerActivity, profile

from trainer.model.build import build_model
from trainer.model.flops import forward_flops
from trainer.parallel import apply_compile
from trainer.recipe import load_recipe

HEADINGS = (
    "recipe",
    "source",
    "target",
    "ms a step",
    "source tokens/s",
    "TFLOP a step",
    "TFLOP/s",
    "share",
    "peak GiB",
)


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=10)
    parser.add_argument("--recipe", default="bart_ls_large")
    parser.add_argument("--source", type=int, default=16_384, help="tokens")
    parser.add_argument("--target", type=int, default=1_024, help="tokens")
    parser.add_argument("--vocab", type=int, default=50_368, help="rows of the token table")
    parser.add_argument("--size", type=int, default=8_192, help="of the square matrices whose product is the ceiling")
    parser.add_argument("--compile", action="store_true", help="compile each layer")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("gpu_step.py measures a CUDA device, and PyTorch finds none here; nothing was measured")
    ceiling = matmul_rate(options.size, options.rounds)
    step, flops = training_step(options)
    step()  # compiles, and fills the allocator
    torch.cuda.reset_peak_memory_stats()
    seconds = measured(step, options.rounds)
    peak = torch.cuda.max_memory_allocated() / 2**30
    typical = statistics.median(seconds)
    row = (
        options.recipe,
        str(options.source),
        str(options.target),
        f"{typical * 1e3:.1f}",
        f"{options.source / typical:,.0f}",
        f"{flops / 1e12:.2f}",
        f"{flops / typical / 1e12:.0f}",
        f"{flops / typical / ceiling:.1%}",
        f"{peak:.1f}",
    )
    device = torch.cuda.get_device_name()
    publish(
        f"A training step of one sequence; the share is of {ceiling / 1e12:.0f} TFLOP/s, bfloat16 products of "
        f"{options.size} x {options.size} matrices on this {device}",
        HEADINGS,
        [row],
        {"device": device, **machine("torch")},
        options.json,
        {"options": vars(options), "ceiling": ceiling, "flops": flops, "seconds": seconds, "peak_gib": peak},
    )
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiled:
        step()
        torch.cuda.synchronize()
    print(profiled.key_averages().table(sort_by="self_device_time_total", row_limit=20, max_name_column_width=60))


def training_step(options) -> tuple[Callable[[], None], int]:
    """The step, and its floating-point operations."""
    config = load_recipe(options.recipe).model
    if config.decoder is None:
        raise SystemExit(f"recipe {options.recipe} has no decoder; choose an encoder-decoder")
    model = build_model(config, options.vocab, seed=0).cuda().train()
    if options.compile:
        apply_compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    generator = torch.Generator("cuda").manual_seed(0)
    source, target = (
        torch.randint(options.vocab, (1, size), device="cuda", generator=generator)
        for size in (options.source, options.target)
    )

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(source, target, target).minimised
        (loss / options.target).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, 3 * forward_flops(config, options.vocab, options.source, options.target)


def matmul_rate(size: int, rounds: int) -> float:
    """Floating-point operations a second of bfloat16 matrix products."""
    a, b = torch.randn(2, size, size, device="cuda", dtype=torch.bfloat16)

    def products() -> None:
        for _ in range(20):
            a @ b

    products()
    return 20 * 2 * size**3 / statistics.median(measured(products, rounds))


def measured(work: Callable[[], None], rounds: int) -> list[float]:
    """Seconds on the device, one for each round."""
    seconds = []
    for _ in range(rounds):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        stop.record()
        torch.cuda.synchronize()
        seconds.append(start.elapsed_time(stop) / 1e3)
    return seconds


if __name__ == "__main__":
    main()
