"""The parts of ``ablations.py``: texts, corpora, pairs, trainings, conversions and predictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from ablations_plan import DECODER, INIT_STD, OBJECTIVES, RECIPES, SHORT, TABLES, TOKENS, Model, Scale
from demo import encoder, replace_text
from downstream_tasks import chains, wiki_lead, wiki_what
from parts import Part
from wikipedia_text import articles, described_pages, lead_sections, write_json_lines

MIXTURE = """\
sequence_length = {length}
documents = "{documents}"

[sources.articles]
weight = 1.0
"""


class Experiment:
    """All parts of the experiment in ``out``."""

    def __init__(self, out: Path, scale: Scale, tables: Sequence[int], seeds: int) -> None:
        self.out, self.scale, self.seeds = out, scale, range(seeds)
        self.tokenizer = out / "tokenizer"
        self.chosen = {number: TABLES[number] for number in tables}
        self.tasks = {
            task: tuning for task, tuning in scale.tunings.items() if not self.chosen.keys().isdisjoint(tuning.tables)
        }
        self.models = list(dict.fromkeys(model for task in self.tasks for model in self.models_of(task)))

    def parts(self) -> list[Part]:
        """The parts; each comes after those that it needs."""
        return [
            *self._texts(),
            *self._corpora({model.corpus for model in self.models}),
            *(part for task in self.tasks for part in self._pairs(task)),
            *(part for seed in self.seeds for part in self._short(seed)),
            *(part for seed in self.seeds for model in self.models for part in self._long(model, seed)),
            *(part for cell in self.cells() for part in self._tuned(*cell)),
        ]

    def tables_of(self, task: str) -> dict[int, Mapping[str, Model]]:
        """The chosen tables that have a task."""
        return {number: models for number, models in self.chosen.items() if number in self.tasks[task].tables}

    def models_of(self, task: str) -> list[Model]:
        """The different models in the tables of a task."""
        return list(dict.fromkeys(model for models in self.tables_of(task).values() for model in models.values()))

    def cells(self) -> Iterator[tuple[Model, str, int]]:
        """Every model, task and seed."""
        return ((model, task, seed) for task in self.tasks for seed in self.seeds for model in self.models_of(task))

    def run(self, model: Model, task: str, seed: int) -> Path:
        """Folder of the fine-tuning of a model."""
        return self.out / "runs" / f"{model.name}-{task}-{seed}"

    def predictions(self, model: Model, task: str, seed: int) -> Path:
        """Folder of the predictions of a fine-tuned model for the test split."""
        return self.out / "predictions" / f"{model.name}-{task}-{seed}"

    def _texts(self) -> list[Part]:
        leads = self.out / "text" / "leads" / "leads.jsonl"
        sections = lambda: write_json_lines(leads, islice(lead_sections(), self.scale.sections))  # noqa: E731
        train = ("tokenizer", "train", "--kind", "byte-level-bpe", "--vocab-size", "8000")
        return [
            Part("text of lead sections", leads, sections),
            *(Part(f"text of {task}", self._lines(task), partial(self._write_lines, task)) for task in self.tasks),
            Part(
                "tokenizer",
                self.tokenizer / "tokenizer.json",
                [*train, "--input", leads.parent, "--output", self.tokenizer],
                (leads,),
            ),
        ]

    def _write_lines(self, task: str) -> None:
        pages, size = list(described_pages()), self.tasks[task].size
        if task == "chains":
            lines = chains(pages, size, facts=self.scale.facts)
        else:
            lines = wiki_what(pages, size) if task == "wiki-what" else wiki_lead(pages, size)
        write_json_lines(self._lines(task), lines)

    def _corpora(self, names: set[str | None]) -> list[Part]:
        text, length, tokenizer = self.out / "text", self.scale.length, self.tokenizer / "tokenizer.json"

        def documents(name: str, texts: str) -> Part:
            words = ("documents", "--input", text / texts, "--tokenizer", self.tokenizer)
            return self._job(name, *words, needs=(tokenizer, text / texts / f"{texts}.jsonl"))

        def corpus(name: str, kind: str, length: int, *flags: str | Path) -> Part:
            place = self.out / "documents"
            words = ("corpus", kind, "--documents", place, "--sequence-length", str(length), *flags)
            return self._job(f"corpus-{name}", *words, needs=(place / "manifest.json",))

        made = [documents("documents", "leads"), corpus("short", "random", SHORT, "--room-per-document", "2")]
        if "random" in names:
            made.append(corpus("random", "random", length))
        if "long" in names:
            articles_file, mixture = text / "articles" / "articles.jsonl", text / "mixture.toml"
            described = MIXTURE.format(length=length, documents=self.out / "documents-long")
            made += [
                Part("text of articles", articles_file, lambda: write_json_lines(articles_file, articles())),
                documents("documents-long", "articles"),
                Part("mixture of articles", mixture, lambda: replace_text(mixture, described)),
            ]
            needs = (mixture, self.out / "documents-long" / "manifest.json")
            made.append(self._job("corpus-long", "corpus", "long", mixture, needs=needs))
        if "linked" in names:
            made.append(corpus("linked", "linked", length, "--encoder", encoder(), "--max-length", "128"))
        return made

    def _pairs(self, task: str) -> list[Part]:
        given, documents = ("--input", f"{task}={self._lines(task)}", "--format", "pairs"), f"documents-{task}"
        ready = (self.tokenizer / "tokenizer.json", self._lines(task))
        made = (self.out / documents / "manifest.json",)
        return [
            self._job(documents, "documents", *given, "--tokenizer", self.tokenizer, needs=ready),
            self._job(
                f"pairs-{task}",
                "pairs",
                *given,
                "--pair-id-field",
                "id",
                "--documents",
                self.out / documents,
                needs=made,
            ),
        ]

    def _short(self, seed: int) -> list[Part]:
        """The short model of a seed, what is made of it, and the scorer where an objective needs one."""
        run, steps = self.out / "runs" / f"short-{seed}", self.scale.short_steps
        common = {"data.corpus": self.out / "corpus-short", **_lengths(SHORT, 128), **_batch(16, SHORT)}
        common |= {"model.encoder.positions.count": SHORT}
        spans = {"data.objective": OBJECTIVES["span-5"], **DECODER, **common}
        parts = [
            self._train(run, "tiny_block", steps, seed, spans, "corpus-short"),
            *(
                self._converted(run, self._start(attention, seed), attention, SHORT, _last(run, steps))
                for attention in dict.fromkeys(model.attention for model in self.models)
            ),
        ]
        if seed == 0 and any(model.objective == "model" for model in self.models):
            tokens = {"data.objective": TOKENS, **common, **INIT_STD}
            parts.append(self._train(self._scorer, "tiny_generator", steps // 2, seed, tokens, "corpus-short"))
        return parts

    def _long(self, model: Model, seed: int) -> list[Part]:
        """The long pretraining of a model, if it has any."""
        if model.corpus is None:
            return []
        start, corpus = self._start(model.attention, seed), f"corpus-{model.corpus}"
        target = self.scale.length // 4
        objective = OBJECTIVES[model.objective].replace("SCORER", str(self._scorer)).replace("TARGET", str(target))
        settings = {
            "data.objective": objective,
            "data.corpus": self.out / corpus,
            "run.initial_model": start,
            **self._model(model.attention, SHORT),
            **_lengths(self.scale.length, target),
            **_batch(4, self.scale.length),
        }
        needs = [start / "manifest.json"]
        if model.objective == "model":
            needs.append(_last(self._scorer, self.scale.short_steps // 2))
        run = self.out / "runs" / f"{model.name}-{seed}"
        return [self._train(run, RECIPES[model.attention], self.scale.long_steps, seed, settings, corpus, *needs)]

    def _tuned(self, model: Model, task: str, seed: int) -> list[Part]:
        """Fine-tuning and generation, after a conversion where the task has blocks of another size."""
        tuning, name = self.tasks[task], f"{model.name}-{task}-{seed}"
        parts: list[Part] = []
        start, ready = self._start(model.attention, seed), self._start(model.attention, seed) / "manifest.json"
        if model.corpus is not None:
            start = self.out / "runs" / f"{model.name}-{seed}"
            ready = _last(start, self.scale.long_steps)
        if tuning.block != SHORT:
            parts.append(self._converted(start, self.out / "models" / name, model.attention, tuning.block, ready))
            start, ready = self.out / "models" / name, parts[-1].finished
        pairs = f"pairs-{task}"
        settings = {
            "data.pairs": self.out / pairs,
            "data.task": tuning.task,
            "run.initial_model": start,
            "optimizer.learning_rate": tuning.learning_rate,
            **self._model(model.attention, tuning.block),
            **_lengths(tuning.length, tuning.target, tuning.block),
            **_batch(tuning.batch_size, tuning.length),
        }
        run, predictions = self.run(model, task, seed), self.predictions(model, task, seed)
        words = ("generate", run, "--pairs", self.out / pairs, "--split", "test", "--output", predictions)
        return [
            *parts,
            self._train(run, RECIPES[model.attention], tuning.steps, seed, settings, pairs, ready),
            Part(f"predictions of {name}", predictions / "manifest.json", words, (_last(run, tuning.steps),)),
        ]

    def _converted(self, model: Path, folder: Path, attention: str, block: int, ready: Path) -> Part:
        """A model with long position tables, another attention or other blocks."""
        settings = {**self._model(attention, block), **_lengths(self.scale.length, 8, block)}
        words: list[str | Path] = ["convert", model, folder, "--recipe", RECIPES[attention], *_flags(settings)]
        return Part(f"model {folder.name}", folder / "manifest.json", words, (ready,))

    def _model(self, attention: str, block: int) -> dict[str, object]:
        """Settings of a long model; a sixteenth of a block is global, as in the recipe."""
        sizes = {"model.encoder.positions.count": self.scale.length, "model.encoder.attention.size": block}
        if attention == "global":
            sizes["model.encoder.attention.global_tokens"] = block // 16
        return {**DECODER, **sizes}

    @property
    def _scorer(self) -> Path:
        return self.out / "runs" / "scorer"

    def _start(self, attention: str, seed: int) -> Path:
        """The short model of a seed, extended to long rows."""
        return self.out / "models" / f"{attention}-{seed}"

    def _lines(self, task: str) -> Path:
        return self.out / "text" / f"{task}.jsonl"

    def _job(self, name: str, *words: str | Path, needs: tuple[Path, ...]) -> Part:
        folder = self.out / name
        return Part(name, folder / "manifest.json", (*words, "--output", folder), needs)

    def _train(
        self, run: Path, recipe: str, steps: int, seed: int, settings: Mapping[str, object], data: str, *needs: Path
    ) -> Part:
        """A training on the artefact ``data``, which needs further files."""
        fixed = {"run.directory": run, "run.steps": steps, "run.seed": seed, "checkpoint.every": steps}
        given = {"schedule.warmup_steps": max(steps // 10, 1), **settings, **fixed}
        ready = (self.out / data / "manifest.json", *needs)
        return Part(run.name, _last(run, steps), ("train", recipe, *_flags(given)), ready)


def _flags(settings: Mapping[str, object]) -> list[str]:
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


def _lengths(source: int, target: int, block: int = SHORT) -> dict[str, object]:
    return {
        "data.source_length": source,
        "data.target_length": target,
        "data.source_multiple": block,
        "data.target_multiple": 8,
    }


def _batch(size: int, source: int) -> dict[str, object]:
    """Settings of the batch; as many rows at a time as have 8,192 positions."""
    return {"run.batch_size": size, "run.micro_batch_size": min(size, max(8192 // source, 1))}


def _last(run: Path, steps: int) -> Path:
    """The file that a finished run ends with."""
    return run / "checkpoints" / f"step-{steps:08d}" / "checkpoint.json"
