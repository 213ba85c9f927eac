"""All commands, in the order of the help: what each is called, its options, and the function that it calls.

The fields of the options are the arguments; their docstrings have the help, further explanation and examples.
"""

from __future__ import annotations

from typing import Any

from pipelines.commands.command import Command
from pipelines.commands.explain import Explain


def _command(name: str, summary: str, run: str, *options: str, **further: Any) -> Command:
    return Command(name=name, summary=summary, run=run, options=options, **further)


def _job(name: str, summary: str, run: str, *options: str, **further: Any) -> Command:
    return _command(name, summary, run, *options, job=True, takes_beam_flags=True, **further)


COMMANDS = (
    _command(
        "tokenizer train",
        "Train a tokenizer on raw text.",
        "pipelines.documents.tokenizer:command",
        "pipelines.documents.options:TokenizerTraining",
        takes_beam_flags=True,
    ),
    _job(
        "documents",
        "Tokenise raw text once, for every corpus built from it.",
        "pipelines.documents.job:plan_raw",
        "pipelines.documents.options:RawText",
        "pipelines.documents.options:Documents",
    ),
    _job(
        "pairs",
        "Pair questions, or summaries to be written, with tokenised documents.",
        "pipelines.pairs.job:plan_raw",
        "pipelines.pairs.options:RawPairs",
        "pipelines.pairs.options:Pairs",
    ),
    _job(
        "corpus random",
        "Shuffle documents globally and concatenate them.",
        "pipelines.corpus.random:plan",
        "pipelines.corpus.options:RandomCorpus",
    ),
    _job(
        "corpus linked",
        "Put related documents into one sequence.",
        "pipelines.corpus.linked_stages:jobs",
        "pipelines.corpus.options:LinkedCorpus",
    ),
    _job(
        "corpus long",
        "Mix sources of long documents by weight, following a recipe.",
        "pipelines.corpus.long:jobs",
        "pipelines.corpus.options:LongCorpus",
    ),
    _job(
        "corpus related",
        "One row for each cluster of related documents, in whole sentences.",
        "pipelines.corpus.related:plan",
        "pipelines.corpus.options:RelatedCorpus",
    ),
    _job(
        "embed",
        "Turn documents into vectors, for `farspan cluster`.",
        "pipelines.retrieval.embed:plan",
        "pipelines.retrieval.options:Embed",
    ),
    _job(
        "cluster",
        "Divide vectors into clusters for `farspan neighbours`.",
        "pipelines.retrieval.cluster:plan",
        "pipelines.retrieval.options:Clustering",
    ),
    _job(
        "neighbours",
        "Find each document's nearest neighbours in its cluster, for `farspan corpus linked`.",
        "pipelines.retrieval.neighbours:plan",
        "pipelines.retrieval.options:NeighbourSearch",
    ),
    _job(
        "mask",
        "Choose what an objective hides in each sequence.",
        "pipelines.masks.job:plan",
        "pipelines.masks.options:Masking",
        declare=lambda parser: parser.add_argument("--options", action=Explain),
    ),
    _command(
        "check-objective",
        "Check that an objective obeys the laws of objectives.",
        "pipelines.inspect.check_objective:command",
        "pipelines.inspect.options:Check",
    ),
    _command(
        "show",
        "Show one row: documents, hidden text and why, source and target; or a question and its answers.",
        "pipelines.inspect.show:command",
        "pipelines.inspect.options:Show",
        reads_artefacts=True,
    ),
    _command(
        "stats",
        "Sizes, waste and lengths of an artefact.",
        "pipelines.inspect.stats:command",
        "pipelines.inspect.options:Stats",
        reads_artefacts=True,
    ),
    _command(
        "verify",
        "Check checksums, structure and meaning of artefacts and runs.",
        "pipelines.inspect.verify:command",
        "pipelines.inspect.options:Verify",
        reads_artefacts=True,
    ),
    _command(
        "finalize",
        "Write the manifest of a job whose driver stopped before the end.",
        "pipelines.commands.finalize:command",
        "pipelines.documents.options:Finalize",
        takes_beam_flags=True,
    ),
    _command(
        "recipes",
        "List the recipes, or print one.",
        "trainer.command:print_recipes",
        "trainer.options:Recipes",
    ),
    _command(
        "convert",
        "Convert a model from Hugging Face, a run or farspan to a farspan or Hugging Face folder.",
        "trainer.conversion.convert:command",
        "trainer.conversion.options:Convert",
    ),
    _command(
        "train",
        "Pretrain on a corpus with masks, or fine-tune on pairs; an interrupted run resumes.",
        "trainer.command:run_command",
        "trainer.options:Training",
    ),
    _command(
        "tasks",
        "List the tasks, which render pairs for fine-tuning, or explain one.",
        "pipelines.inspect.explain:print_tasks",
        "pipelines.inspect.options:Tasks",
    ),
    _command(
        "generate",
        "Generate a text for each pair of a split.",
        "pipelines.generation.generate:command",
        "pipelines.generation.options:Generating",
    ),
    _command(
        "evaluate",
        "Score predictions with confidence intervals, and compare systems.",
        "pipelines.evaluation.evaluate:command",
        "pipelines.evaluation.options:Evaluate",
    ),
    _command(
        "submit",
        "Write predictions as the SCROLLS server takes them.",
        "pipelines.evaluation.submit:command",
        "pipelines.evaluation.options:Submission",
    ),
    _command(
        "push",
        "Publish an artefact or an exported model on the Hugging Face hub.",
        "pipelines.push:command",
        "pipelines.push:Push",
    ),
    _command(
        "completion",
        "Print a script that completes farspan's commands and flags in a shell.",
        "pipelines.commands.completion:command",
        "pipelines.commands.completion:Completion",
    ),
)
