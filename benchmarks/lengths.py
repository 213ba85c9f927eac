"""Time and memory of the encoder-decoders over the length of the source, up to memory (LongT5, figures 3 and 4).

One run is the loss of one sequence and its gradients for all weights, as in ``attention_models.py``, whose models
these are. Each run has a process of its own, in which a shorter run has loaded all code. Lengths are doubled until a
run needs more than ``--memory`` or ``--minutes``. With ``--peers``, the models of transformers run at the same lengths.

On a CPU, time is that of the processors, which other work changes less than that of the clock, and memory is the peak
of resident memory less what was resident before the run; on a GPU, seconds and the peak of allocated memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import torch
import transformers
from attention_models import CASES, LAYERS, SIDES, WIDTH, Batch, Case, make_batch, resident, run
from report import arguments, machine, publish

from pipelines.figures import check_figure, count_axis, grid, label_lines, save, use_style

SHORTER = 1024
"""Most positions of the run that loads all code."""

Run = dict[str, Any]
"""Case, side, length, seconds and bytes of a run; without seconds if it needed too much."""


def measure(case: Case, side: str, length: int, target: int) -> Run:
    """Measure a run in this process."""
    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    model = SIDES[side](case, length, target).to(device)

    def batch(size: int, written: int) -> Batch:
        parts = make_batch(case, size, written)
        return Batch(*(None if part is None else part.to(device) for part in parts))

    run(model, batch(min(length, SHORTER), min(target, 64)))
    model.zero_grad()
    whole = batch(length, target)
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before, start = torch.cuda.memory_allocated(), time.perf_counter()
        run(model, whole)
        torch.cuda.synchronize()
        seconds, peak = time.perf_counter() - start, torch.cuda.max_memory_allocated()
    else:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # the peak starts anew from what is resident now
        before, start = resident("VmRSS"), time.process_time()
        run(model, whole)
        seconds, peak = time.process_time() - start, resident("VmHWM")
    return {"seconds": seconds, "bytes": peak - before}


def measure_apart(case: Case, side: str, length: int, options: Any) -> Run:
    """Measure a run in a process of its own, which is ended once it needs more than ``options`` allow."""
    words = ["--one", case.name, side, str(length), "--target", str(options.target), "--threads", str(options.threads)]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(1 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 20)}
    process = subprocess.Popen(
        [sys.executable, os.path.abspath(__file__), *words], env=environment, stdout=subprocess.PIPE, text=True
    )
    ends, result = time.monotonic() + 60 * options.minutes, {"case": case.name, "side": side, "length": length}
    while process.poll() is None:
        time.sleep(0.1)
        too_long = time.monotonic() > ends
        if too_long or resident("VmRSS", process.pid) > options.memory * 2**30:
            process.kill()
            process.wait()
            return {**result, "stopped": "time" if too_long else "memory"}
    assert process.stdout is not None
    said = process.stdout.read()
    return {**result, **(json.loads(said) if process.returncode == 0 else {"stopped": "memory"})}


def measure_lengths(case: Case, side: str, options: Any) -> list[Run]:
    """Measure all lengths up to the one that needs too much, which is the last."""
    runs: list[Run] = []
    length = options.least
    while length <= options.most and not (runs and "stopped" in runs[-1]):
        runs.append(measure_apart(case, side, length, options))
        print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
        length *= 2
    return runs


def cells(runs: list[Run]) -> list[tuple[str, ...]]:
    """Rows of the table, one for each case, side and length."""
    rows: list[tuple[str, ...]] = []
    for one in runs:
        numbers = ("", f"stopped by {one['stopped']}") if "stopped" in one else ()
        numbers = numbers or (f"{one['seconds']:.1f}", f"{one['bytes'] / 2**20:,.0f}")
        rows.append((one["case"], one["side"], f"{one['length']:,}", *numbers))
    return rows


def draw(runs: list[Run], path: str) -> None:
    """Draw time and memory over length, both axes logarithmic."""
    done = [one for one in runs if "stopped" not in one]
    with use_style() as plt:
        figure, axes = grid(plt, 2, panel=(4.2, 3.2))
        for axis, name, scale, title in zip(
            axes, ("seconds", "bytes"), (1.0, 2.0**20), ("seconds", "MiB above the weights"), strict=True
        ):
            ends = []
            for line in dict.fromkeys((one["case"], one["side"]) for one in done):
                points = [(one["length"], one[name] / scale) for one in done if (one["case"], one["side"]) == line]
                label = line[0] if line[1] == "ours" else f"{line[0]}, peer"
                (drawn,) = axis.plot(*zip(*points, strict=True), "o-" if line[1] == "ours" else "o--", markersize=3)
                ends.append((*points[-1], label, drawn.get_color()))
            axis.set_title(title)
            axis.set_yscale("log")
            lengths = [one["length"] for one in done]
            count_axis(axis.xaxis, min(lengths), max(lengths) * 1.05, log=True)
            label_lines(axis, ends)
        save(plt, figure, path)


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=1)
    names = [case.name for case in CASES]
    parser.add_argument("--cases", nargs="+", choices=names, default=[name for name in names if name != "span"])
    parser.add_argument("--peers", action="store_true", help="also measure the models of transformers")
    parser.add_argument("--least", type=int, default=1024, help="the shortest source")
    parser.add_argument("--most", type=int, default=1 << 20, help="the longest source")
    parser.add_argument("--target", type=int, default=256, help="tokens of the target")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", type=float, default=8.0, help="GiB of a process after which lengths end")
    parser.add_argument("--minutes", type=float, default=10.0, help="minutes of a process after which lengths end")
    parser.add_argument("--figure", metavar="FILE", help="draw time and memory over length")
    parser.add_argument("--one", nargs=3, metavar=("CASE", "SIDE", "LENGTH"), help="print one run as JSON")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(options.threads)
    by_name = {case.name: case for case in CASES}
    if options.one:
        name, side, length = options.one
        print(json.dumps(measure(by_name[name], side, int(length), options.target)))
        return
    if options.figure:
        check_figure(options.figure)
    sides = ("ours", "peer") if options.peers else ("ours",)
    runs = [one for name in options.cases for side in sides for one in measure_lengths(by_name[name], side, options)]
    publish(
        f"Forward and backward of one sequence with {options.target} target tokens, {LAYERS} + {LAYERS} layers of "
        f"width {WIDTH}, float32, {options.threads} threads; load {os.getloadavg()[0]:.0f}",
        ("model", "side", "source", "seconds", "MiB"),
        cells(runs),
        machine("torch", "transformers"),
        options.json,
        {"target": options.target, "threads": options.threads, "load": os.getloadavg(), "runs": runs},
    )
    if options.figure:
        draw(runs, options.figure)


if __name__ == "__main__":
    main()
