"""All commands, in the order of the help: words, summary, function, and the dataclasses whose fields are the arguments.

Modules that begin with a dot are in ``pipelines``. A dataclass is in the module ``options`` beside the function's,
unless its module is named.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from pipelines.commands.command import Command, Explain, ExplainKeys


def _command(name: str, summary: str, run: str, *options: str, **further: Any) -> Command:
    return Command(name=name, summary=summary, run=run, options=options, **further)


_job = partial(_command, flags="engine")
_MASK = "farspan mask span --preset bart_ls --corpus {output} --output masks"

COMMANDS = (
    _command(
        "tokenizer train",
        "Train a tokenizer on raw text.",
        ".documents.tokenizer:command",
        "TokenizerTraining",
        flags="s3",
        next="farspan documents --input TEXT --tokenizer {output} --output documents",
    ),
    _job(
        "documents",
        "Tokenise raw text once, for every corpus built from it.",
        ".documents.job:plan_raw",
        "RawText",
        "Documents",
        next="farspan corpus random --documents {output} --sequence-length 4096 --output corpus (or farspan pairs)",
    ),
    _job(
        "pairs",
        "Pair questions, or summaries to be written, with tokenised documents, or make questions about them.",
        ".pairs.probes:jobs",
        "RawPairs",
        "Probing",
        "Pairs",
        next="farspan train tiny_short --set data.pairs={output} --set run.initial_model=RUN --set run.directory=tuned",
    ),
    _job(
        "corpus random",
        "Shuffle documents globally and concatenate them.",
        ".corpus.random:plan",
        "RandomCorpus",
        next=_MASK,
    ),
    _job(
        "corpus linked", "Put similar documents into one sequence.", ".corpus.linked:jobs", "LinkedCorpus", next=_MASK
    ),
    _job(
        "corpus long",
        "Mix sources of long documents by weight, as a mixture file says.",
        ".corpus.long:jobs",
        "LongCorpus",
        next=_MASK,
    ),
    _job(
        "corpus related",
        "Put each cluster of related documents into one row, in whole sentences.",
        ".corpus.related:plan",
        "RelatedCorpus",
        next=_MASK,
    ),
    _job(
        "embed",
        "Turn documents into vectors, for `farspan cluster`.",
        ".retrieval.embed:plan",
        "Embed",
        next="farspan cluster --vectors {output} --output clusters",
    ),
    _job(
        "cluster",
        "Divide vectors into clusters for `farspan neighbours`.",
        ".retrieval.cluster:plan",
        "Clustering",
        next="farspan neighbours --clusters {output} --output neighbours",
    ),
    _job(
        "neighbours",
        "Find each document's nearest neighbours in its cluster, for `farspan corpus linked`.",
        ".retrieval.neighbours:plan",
        "NeighbourSearch",
        next="farspan corpus linked --documents DOCUMENTS --neighbours {output} --sequence-length 4096 --output corpus",
    ),
    _job(
        "mask",
        "Choose what an objective hides in each sequence.",
        ".masks.job:plan",
        "Masking",
        next="farspan view {output}",
        declare=lambda parser: parser.add_argument("--options", action=Explain),
    ),
    _job(
        "export",
        "Write documents, a corpus or a mask set as files of other trainers.",
        ".export.job:plan",
        ".options:Export",
        next="farspan verify {output}",
    ),
    _command(
        "check-objective",
        "Test the properties of an objective that training and resuming rely on.",
        ".inspect.plugins:check",
        "Check",
    ),
    _command(
        "show",
        "Show one row: documents, hidden text and why, source and target; or a question and its answers.",
        ".inspect.show:command",
        "Show",
        flags="s3",
    ),
    _command(
        "view",
        "Look at artefacts in a browser: rows, several mask sets side by side, predictions and references.",
        ".view.command:command",
        ".pages.options:View",
        flags="s3",
    ),
    _command("stats", "Print sizes, padding and lengths of artefacts.", ".inspect.stats:command", "Stats", flags="s3"),
    _command(
        "verify",
        "Check checksums, structure and meaning of artefacts and runs.",
        ".inspect.verify:command",
        "Verify",
        flags="s3",
    ),
    _command(
        "finalize",
        "Write the manifest of a job whose driver stopped before the end.",
        ".engine.folder:command",
        "Finalize",
        flags="s3",
    ),
    _command("recipes", "List the recipes, or print one.", "trainer.command:print_recipes", "Recipes"),
    _command(
        "convert",
        "Convert a model from Hugging Face, a run or farspan to a farspan or Hugging Face folder.",
        "trainer.conversion.convert:command",
        "trainer.options:Convert",
        next="farspan train RECIPE --set run.initial_model={output}",
    ),
    _command(
        "train",
        "Pretrain on a corpus with masks, or fine-tune on pairs; an interrupted run resumes.",
        "trainer.command:run_command",
        "Training",
        declare=lambda parser: parser.add_argument("--options", nargs="?", metavar="KEY", action=ExplainKeys),
    ),
    _command("runs", "List training runs: step, losses, speed, state.", ".runs.logs:command", ".options:Runs"),
    _command(
        "plot",
        "Draw the curves of training runs, and name the updates at which a loss rose.",
        ".runs.plot:command",
        ".options:Plot",
    ),
    _command(
        "tasks",
        "List the tasks, which render pairs for fine-tuning, or explain one.",
        ".inspect.plugins:print_tasks",
        "Tasks",
    ),
    _command(
        "generate",
        "Generate a text for each pair of a split.",
        ".generate:command",
        "Generating",
        next="farspan evaluate {output} --metrics METRICS",
    ),
    _command(
        "evaluate",
        "Score predictions with confidence intervals, and compare systems.",
        ".evaluation.evaluate:command",
        "Evaluate",
    ),
    _command(
        "submit", "Write predictions as the SCROLLS server takes them.", ".evaluation.submit:command", "Submission"
    ),
    _command(
        "study",
        "Run a grid of commands from one file, and compare its arms with intervals over seeds and examples.",
        ".study.run:command",
        ".options:Study",
    ),
    _command(
        "push", "Publish an artefact or an exported model on the Hugging Face hub.", ".push:command", ".options:Push"
    ),
    _command(
        "completion",
        "Print a script that completes farspan's commands and flags in a shell.",
        ".commands:complete",
        ".commands:Completion",
    ),
)
