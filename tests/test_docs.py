"""The documentation: commands parse, examples work, figures are true, links lead somewhere, quoted errors exist."""

import json
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from corpora.keyed import make_key
from objectives.api import protocol
from objectives.api.laws import LAWS
from objectives.api.protocol import CorpusFacts, Objective, load_objective
from objectives.api.trial import Trial
from objectives.tasks.presets import PRESETS
from objectives.tasks.protocol import Task, load_task
from objectives.tasks.text_to_text import TextToText
from pipelines.commands import build_parser
from pipelines.commands.table import COMMANDS
from tests.factories import OWNED, VOCAB, make_sequences
from tests.objectives.tasks.pairs import BOS, EOS, FACTS, SEPARATOR, pair_batch, sources
from trainer.recipe import load_recipe
from trainer.recipe_files import list_recipes

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
WRITTEN = sorted(path for path in DOCS.rglob("*.md") if not {"generated", "_build"} & set(path.parts))
PAGES = [ROOT / "README.md", *WRITTEN]
BESIDE = ("finetuning.md", "evaluation.md", "datasets.md")  # run by tests of their own
NOTEBOOK = json.loads((DOCS / "tutorial.ipynb").read_text("utf-8"))
OBJECTIVES, TASKS = ((DOCS / f"{name}.md").read_text("utf-8") for name in ("objectives", "tasks"))
NAMES = {BOS: "<bos>", EOS: "<eos>", SEPARATOR: "<doc-sep>", 100: "a", 200: "b", 300: "c"}
FIGURES = re.findall(r"^documents = (\w+)(?: leftover=(\w+))? +(<bos>.*)$", TASKS, re.MULTILINE)


def shell_lines(page: Path) -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def commands(*pages: Path) -> list[str]:
    return sorted({line for page in pages for line in shell_lines(page) if line.startswith("farspan ")})


def example(page: str, number: int, name: str) -> Any:
    """A class of a page."""
    block = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[number]
    scope: dict[str, Any] = {"__name__": __name__}  # a dataclass looks for its module
    exec(block, scope)
    return scope[name]


def test_every_command_is_shown():
    text = "".join(page.read_text("utf-8") for page in (ROOT / "README.md", DOCS / "demo.md", DOCS / "install.md"))
    assert [command.name for command in COMMANDS if f"farspan {command.name}" not in text] == []
    kinds = {tuple(line.split()[1:3]) for line in commands(ROOT / "README.md", DOCS / "demo.md")}
    assert kinds >= {("tokenizer", "train"), *(("corpus", kind) for kind in ("random", "linked", "long", "related"))}


@pytest.mark.parametrize("command", commands(*(page for page in PAGES if page.name not in BESIDE)))
def test_the_parser_takes(command: str):
    parser = build_parser()
    if "--options" in command or "--version" in command:  # explains something and stops
        with pytest.raises(SystemExit, match=r"^0$"):
            parser.parse_args(shlex.split(command)[1:])
        return
    options = parser.parse_args(shlex.split(command.partition(" > ")[0], comments=True)[1:])
    if options.command == "train":
        load_recipe(options.recipe, options.set)


COVERAGE = (DOCS / "coverage.md").read_text("utf-8")


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`((?:farspan|python) [^`]+)`", COVERAGE))))
def test_the_commands_of_the_papers_tables_start(command: str):
    """A recipe with its settings loads, is small, and its objective exists; other commands parse."""
    program, *words = shlex.split(command)
    if program == "python":
        assert (ROOT / (f"{words[1].replace('.', '/')}.py" if words[0] == "-m" else words[0])).is_file()
        return
    if "--help" in words or len(words) == 1:
        assert words[0] in {each.name for each in COMMANDS}
        return
    options = build_parser().parse_args(words)
    if options.command == "mask":
        load_objective(*protocol.OBJECTIVES.resolve(options.objective, options.preset))
    if options.command == "train":
        recipe = load_recipe(options.recipe, options.set)
        assert recipe.model.width <= 128
        if recipe.data.objective:
            load_objective(recipe.data.objective.name, recipe.data.objective.preset, recipe.data.objective.options)
        if recipe.data.task:
            load_task(recipe.data.task.name, recipe.data.task.preset, recipe.data.task.options)


def test_the_papers_tables_name_recipes_and_every_table():
    recipes, families = set(list_recipes()), "bart_ls|longt5|t5|pegasus_x|bigbird_pegasus|led|primera|cdlm|mbart|tiny"
    named = re.findall(rf"`((?:{families})_?\w*)`", COVERAGE)
    assert {name for name in named if name.split("_")[0] != "longt5" or "paper" not in name} <= recipes | {*PRESETS}
    for paper, count in {"BART-LS": 9, "LongT5": 8, "PEGASUS-X": 15}.items():
        section = COVERAGE.split(f"## {paper}\n")[1].split("\n## ")[0]
        tables = re.findall(r"^\| ([\d, ]+) \|", section, re.MULTILINE)
        assert sorted(int(number) for table in tables for number in table.split(",")) == list(range(1, count + 1))


def test_make_knows_its_targets():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = [line.split()[1] for line in shell_lines(ROOT / "README.md") if line.startswith("make ")]
    assert targets == ["demo", "test"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    assert "make test" in (ROOT / ".ci" / "run").read_text("utf-8")


def test_pictures_are_there():
    pictures = {
        page.parent / picture
        for page in PAGES
        for picture in re.findall(r"!\[[^]]+\]\(([^)]+)\)", page.read_text("utf-8"))
    }
    assert len(pictures) > 10
    assert [picture for picture in pictures if picture.stat().st_size < 1_000] == []


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize(("number", "name"), [(0, "RandomSentences"), (1, "LastSentences")])
def test_the_examples_obey_the_laws(number, name, law):
    kind = example(OBJECTIVES, number, name)
    batch = make_sequences([200, 60, 5, 2], 3, mean_sentence=6)
    facts = CorpusFacts(VOCAB, OWNED, 210, 200, 3)
    assert list(law(Trial(lambda options: kind(**(options or {})), batch, facts))) == []


def test_the_example_of_an_own_objective_works():
    objective = example(OBJECTIVES, 1, "LastSentences")(sentences=3)
    assert isinstance(objective, Objective)
    batch = make_sequences([200, 60, 5, 0], 3)
    special = objective.validate(CorpusFacts(VOCAB, OWNED, 210, 200, 3))
    masks = objective.mask(batch, make_key(0, "mask"))
    examples = objective.render(batch, masks, special)
    assert np.array_equal(examples.source_lengths, masks.source_lengths)
    assert np.array_equal(examples.target_lengths, masks.target_lengths)
    assert masks.span_starts.lengths[0] >= 1
    for row in range(4):
        borders = [*batch.document_starts[row][1:], batch.tokens.lengths[row]]
        ends = masks.span_starts[row] + masks.span_lengths[row]
        assert set(ends.tolist()) <= set(borders)
        for start in masks.span_starts[row]:
            assert start in batch.sentence_starts[row]


def test_every_objective_and_preset_is_named():
    for name, entry in protocol.OBJECTIVES.installed().items():
        if entry.value.startswith("objectives."):
            for word in (name, *entry.load().presets):
                assert f"`{word}`" in OBJECTIVES, word


def test_the_example_of_an_own_task_works():
    task = example(TASKS, 0, "ShortFirst")(source_length=12)
    assert isinstance(task, Task)
    assert sources(task, pair_batch([[[9] * 5, [8], [7, 7]]])) == [[BOS, 8, SEPARATOR, 7, 7, SEPARATOR, *[9] * 5, EOS]]
    special = task.validate(FACTS)
    assert task.render(pair_batch([[[9]]]), np.array([0]), special).examples.target_ids.tolist() == [[7, EOS]]


@pytest.mark.parametrize(("documents", "leftover", "shown"), FIGURES)
def test_the_figure_of_documents_is_true(documents, leftover, shown):
    options = {"documents": documents, "leftover": leftover or "lost", "source_length": 15, "query": "none"}
    (found,) = sources(load_task("text_to_text", None, options), pair_batch([[[100] * 9, [200] * 2, [300] * 5]]))
    assert " ".join(NAMES[token] for token in found) == shown


def test_every_option_and_preset_of_tasks_is_named():
    assert len(FIGURES) == 3
    for word in (*PRESETS, *TextToText().options):
        assert f"`{word}`" in TASKS, word


@pytest.fixture(scope="module")
def pages():
    """The module that writes the generated pages."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(DOCS))
        return import_module("site_pages")


@pytest.fixture(scope="module")
def generated(pages) -> dict[str, str]:
    """Name -> text of the generated pages that need no import of the whole package."""
    return {
        **pages.command_pages(),
        "recipe-keys.md": pages.recipe_keys_page(),
        "tutorial.md": pages.notebook_page(NOTEBOOK),
        **pages.recipe_pages(ROOT / "trainer" / "recipes"),
    }


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and MyST name them."""
    plain = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    names = re.findall(r"^#{1,4} +(.+?) *$", plain, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-") for name in names}


def links(text: str) -> list[str]:
    plain = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", plain) if not re.match(r"https?://|mailto:", link)]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_to_files_and_headings(page: Path, generated):
    for link in links(page.read_text("utf-8")):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if "generated" in target.parts:
            assert target.name == "api.md" or target.relative_to(DOCS / "generated").as_posix() in generated, link
            continue
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target.read_text("utf-8")), link


def test_links_of_the_tutorial_lead_somewhere(generated):
    for link in links(generated["tutorial.md"]):
        assert Path(os.path.normpath(DOCS / "generated" / link.partition("#")[0])).exists(), link


def test_the_tutorial_shows_its_outputs(pages, generated):
    page, pictures = generated["tutorial.md"], pages.notebook_pictures(NOTEBOOK)
    assert pictures.keys() == set(re.findall(r"^```{image} (\S+)\n:alt: .+", page, re.MULTILINE))
    assert pictures
    assert all(picture.startswith(b"\x89PNG") for picture in pictures.values())
    for output in (output for cell in NOTEBOOK["cells"] for output in cell.get("outputs", ())):
        data = output.get("data", {})
        if "image/png" not in data:
            assert "".join(data.get("text/html") or output["text"]).rstrip() in page


def test_every_page_is_in_one_table_of_contents():
    index = (DOCS / "index.md").read_text("utf-8")
    listed = [
        line
        for block in re.findall(r"```{toctree}\n(.*?)```", index, re.DOTALL)
        for line in block.splitlines()
        if line and not line.startswith(":")
    ]
    assert len(listed) == len(set(listed))
    written = {path.relative_to(DOCS).with_suffix("").as_posix() for path in WRITTEN} - {"index"}
    assert written == {name for name in listed if not name.startswith("generated/")}


def test_the_command_reference_has_every_command_and_flag(generated):
    addresses = {command.name: f"commands/{command.name.replace(' ', '-')}" for command in COMMANDS}
    assert {name.removesuffix(".md") for name in generated if name.startswith("commands/")} == {*addresses.values()}
    for name, address in addresses.items():
        assert f"[`{name}`]({address}.md)" in generated["commands.md"]
        assert generated[f"{address}.md"].startswith(f"# farspan {name}\n")
    documents = generated["commands/documents.md"]
    assert "`--held-out HELD_OUT`\n: share of documents reserved for evaluation" in documents
    assert "`--workers" in documents
    assert not any("%%" in text for name, text in generated.items() if name.startswith("commands/"))


def test_the_recipe_pages_have_every_recipe(generated):
    for recipe in sorted((ROOT / "trainer" / "recipes").rglob("*.toml")):
        page = generated[f"recipes/{recipe.parent.name}.md"]
        assert f"## {recipe.stem}\n" in page
        assert recipe.read_text("utf-8").rstrip() in page
        assert f"recipes/{recipe.parent.name}" in generated["recipes.md"]


def source_text() -> str:
    """The source of all packages, with strings that continue on the next line joined."""
    packages = ("corpora", "objectives", "trainer", "pipelines")
    text = "\n".join(path.read_text("utf-8") for name in packages for path in (ROOT / name).rglob("*.py"))
    return re.sub(r'"\n\s*f?"', "", text)


def test_the_errors_of_the_faq_are_those_of_the_code():
    page = (DOCS / "faq.md").read_text("utf-8").split("## Questions")[0]
    quoted = re.findall(r"^### `(.+?)`", page, re.MULTILINE)
    assert len(quoted) > 15
    known = source_text()
    filled_in = r"\.\.\.|'[^']*'|faiss|1\.00%|manifest\.json|unfinished|held-out (?=doc)"
    for message in quoted:
        for part in re.split(filled_in, message):
            assert part.strip(" ,;()") in known, (message, part)


def test_the_citation_file_and_page_name_the_same_papers():
    page = (DOCS / "cite.md").read_text("utf-8")
    references = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))["references"]
    on_the_page = dict(re.findall(r"\*([^*]+)\*, .*?\((https://arxiv[^)]+)\)", page))
    assert on_the_page == {reference["title"]: reference["url"] for reference in references}
    for reference in references:
        assert f"{reference['authors'][0]['family-names']}" in page
        assert str(reference["year"]) in page
        if reference["type"] == "conference-paper":
            assert reference["doi"].startswith(f"10.18653/v1/{reference['year']}.")


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", f"{tmp_path}/trees", str(DOCS)]
    done = subprocess.run([*command, f"{tmp_path}/html"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("index", "generated/commands", "generated/api/mask", "generated/tutorial", "howto/publish"):
        assert (tmp_path / "html" / f"{name}.html").stat().st_size > 5_000
