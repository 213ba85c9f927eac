"""A training step on a CUDA device at 16,384 source and 1,024 target tokens: how much of the device it uses.

The share is of a measured ceiling: large bfloat16 matrix products in the same run. What a step computes is counted by
formula (``trainer.metrics``), three forward passes. A step is forward, backward and AdamW on one sequence without
padding, nothing computed twice; each model runs as it is and with its layers compiled.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
from report import arguments, machine, publish
from torch.profiler import ProfilerActivity, profile

from trainer.metrics import forward_flops
from trainer.model.build import build_model
from trainer.parallel.wrapping import apply_compile
from trainer.recipe import load_recipe

HEADINGS = (
    "recipe",
    "compiled",
    "ms a step",
    "source tokens/s",
    "TFLOP a step",
    "TFLOP/s",
    "share",
    "goal",
    "peak GiB",
)
GOAL = 0.5


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=10)
    parser.add_argument("--recipes", nargs="+", default=["bart_ls_base", "bart_ls_large"])
    parser.add_argument("--source", type=int, default=16_384, help="tokens")
    parser.add_argument("--target", type=int, default=1_024, help="tokens")
    parser.add_argument("--vocab", type=int, default=50_368, help="rows of the token table")
    parser.add_argument("--size", type=int, default=8_192, help="of the square matrices whose product is the ceiling")
    parser.add_argument("--no-compile", action="store_true", help="leave out the rows with compiled layers")
    parser.add_argument("--profile", action="store_true", help="also list the kernels that take the most time")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("gpu_step.py measures a CUDA device, and PyTorch finds none here; nothing was measured")
    ceiling = matmul_rate(options.size, options.rounds)
    kinds = (False,) if options.no_compile else (False, True)
    measured = [measure(recipe, compiled, options) for recipe in options.recipes for compiled in kinds]
    device = torch.cuda.get_device_name()
    publish(
        f"A training step of one sequence, {options.source:,} source and {options.target:,} target tokens; the share "
        f"is of {ceiling / 1e12:.0f} TFLOP/s, bfloat16 products of {options.size} x {options.size} matrices here",
        HEADINGS,
        [cells(row, options.source, ceiling) for row in measured],
        {"device": device, **machine("torch")},
        options.json,
        {"options": vars(options), "ceiling": ceiling, "rows": measured},
    )


def measure(recipe: str, compiled: bool, options) -> dict[str, Any]:
    """Seconds of the steps of one model, their operations, and the most memory that they took."""
    torch.compiler.reset()
    torch.cuda.empty_cache()
    step, flops = training_step(recipe, compiled, options)
    for _ in range(3):  # compiles, fills the allocator, and lets the clock settle
        step()
    torch.cuda.reset_peak_memory_stats()
    found = {
        "recipe": recipe,
        "compiled": compiled,
        "flops": flops,
        "seconds": device_seconds(step, options.rounds),
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
    }
    if options.profile:
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiled:
            step()
            torch.cuda.synchronize()
        print(profiled.key_averages().table(sort_by="self_device_time_total", row_limit=20, max_name_column_width=60))
    return found


def cells(row: dict[str, Any], source: int, ceiling: float) -> tuple[str, ...]:
    seconds, flops = statistics.median(row["seconds"]), row["flops"]
    return (
        row["recipe"],
        "yes" if row["compiled"] else "no",
        f"{seconds * 1e3:.1f}",
        f"{source / seconds:,.0f}",
        f"{flops / 1e12:.2f}",
        f"{flops / seconds / 1e12:.0f}",
        f"{flops / seconds / ceiling:.1%}",
        f"{GOAL:.0%}",
        f"{row['peak_gib']:.1f}",
    )


def training_step(recipe: str, compiled: bool, options) -> tuple[Callable[[], None], int]:
    """The step, and its floating-point operations."""
    config = load_recipe(recipe).model
    if config.decoder is None:
        raise SystemExit(f"recipe {recipe} has no decoder; choose an encoder-decoder")
    model = build_model(config, options.vocab, seed=0).cuda().train()
    if compiled:
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
    return 20 * 2 * size**3 / statistics.median(device_seconds(products, rounds))


def device_seconds(work: Callable[[], None], rounds: int) -> list[float]:
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
