"""How many seeds a difference needs: share of simulated studies whose 95 % interval excludes 0.

Two arms share seeds and 200 examples. A difference is given in standard deviations of one arm's score between seeds;
examples differ by five of these between arms, and by eight from seed to seed, as answers of small models do.

    python -m benchmarks.study_power
"""

from __future__ import annotations

import numpy as np

from pipelines.study.table import difference

SEEDS = (3, 5, 8, 12, 20)
DIFFERENCES = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0)
EXAMPLES, BY_ARM, BY_SEED = 200, 5.0, 8.0


def power(seeds: int, effect: float, studies: int = 400) -> float:
    """Return the share of studies that find a difference."""
    rng = np.random.default_rng([seeds, round(10 * effect)])
    shares = []
    for _ in range(studies):
        arms = [
            rng.normal(0, 1, (seeds, 1))
            + rng.normal(0, BY_ARM / 2**0.5, EXAMPLES)
            + rng.normal(0, BY_SEED / 2**0.5, (seeds, EXAMPLES))
            for _ in range(2)
        ]
        _, low, high = difference(arms[0] + effect, arms[1])
        assert low is not None
        assert high is not None
        shares.append(low > 0 or high < 0)
    return float(np.mean(shares))


def main() -> None:
    """Print the table of docs/study.md."""
    print("| difference / standard deviation of seeds |", *(f" {seeds} seeds |" for seeds in SEEDS), sep="")
    print("|---|", "---|" * len(SEEDS), sep="")
    for effect in DIFFERENCES:
        print(f"| {effect:g} |", *(f" {power(seeds, effect):.2f} |" for seeds in SEEDS), sep="", flush=True)


if __name__ == "__main__":
    main()
