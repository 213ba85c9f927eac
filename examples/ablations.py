"""BART-LS's ablations at small size: models that differ in attention, corpus or objective.

A short model is pretrained on rows of 256 tokens, as BART was on rows of 512, and extended to long rows by ``farspan
convert``. As in tables 1, 2 and 3 of Xiong et al. 2022, one thing varies at a time:

1. attention: block, overlapping blocks, global tokens, pooling; fine-tuned without long pretraining;
2. corpus of the long pretraining, with pooling: none, long documents, random and linked short ones;
3. objective of the long pretraining, on random rows: spans of 5 tokens, mixed spans, principal sentences, model-based.

Every model is fine-tuned on the tasks of ``downstream_tasks.py`` with several seeds, generates answers with beam
search, and is scored. Three seeds of so small a model decide nothing (docs/models.md). All parts are ``farspan``
commands, run ``--jobs`` at a time; what is finished is skipped, so an interrupted run is resumed by the same call.

The recipes are the tiny ones with a decoder of one layer, because deeper decoders can connect facts by themselves.
Task ``chains`` depends on the encoder most: facts lie far apart in a text of many small blocks, so the encoder has to
prepare the answer to a question with two hops, and blocks that never see each other cannot. It is left out unless
asked for, because its second hop was not learned: a model 64 wide with relative positions solved one hop after 400
updates of 128 sources of 26 tokens, and did not get further in 3,000. ``two_hops.py`` shows with rows of single tokens
which patterns connect two facts.

    python examples/ablations.py OUTPUT [--tables 1 2 3] [--tasks wiki-what wiki-lead] [--seeds 3] [--jobs 2] [--quick]
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from ablations_parts import Experiment
from ablations_plan import QUICK, TABLES, Scale
from ablations_table import draw, print_tables, read_cells
from parts import run_all


def main() -> None:
    parser = argparse.ArgumentParser(description="BART-LS's tables 1, 2 and 3 at small size.")
    parser.add_argument("output", type=Path, help="folder")
    parser.add_argument("--tables", type=int, nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument(
        "--tasks", nargs="+", choices=QUICK.tunings, help="default: wiki-what and wiki-lead; with --quick: all"
    )
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each model (default: 3)")
    parser.add_argument("--jobs", type=int, default=2, help="commands at a time (default: 2)")
    parser.add_argument("--quick", action="store_true", help="one seed, one task and a few steps, to try the script")
    given = parser.parse_args()
    scale, seeds = (QUICK, 1) if given.quick else (Scale(), given.seeds)
    tasks = given.tasks or (scale.tunings if given.quick else ("wiki-what", "wiki-lead"))
    if not any(set(scale.tunings[task].tables) & set(given.tables) for task in tasks):
        parser.error(f"none of the tables {given.tables} has one of the tasks {tasks}; give --tables 1 for chains")
    scale = replace(scale, tunings={task: scale.tunings[task] for task in tasks})
    experiment = Experiment(given.output.absolute(), scale, given.tables, seeds)
    run_all(experiment.parts(), given.jobs, experiment.out / "log")
    cells = read_cells(experiment)
    print_tables(experiment, cells)
    draw(experiment, cells, experiment.out / "ablations.svg")
    print(experiment.out / "ablations.svg")


if __name__ == "__main__":
    main()
