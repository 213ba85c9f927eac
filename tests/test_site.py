"""The site: every page has its place, links lead somewhere, generated pages are complete, quoted errors exist."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
WRITTEN = sorted(path for path in DOCS.rglob("*.md") if not {"generated", "_build"} & set(path.parts))
NOTEBOOK = json.loads((DOCS / "tutorial.ipynb").read_text("utf-8"))


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
        "commands.md": pages.commands_page(),
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


@pytest.mark.parametrize("page", [ROOT / "README.md", *WRITTEN], ids=lambda path: path.relative_to(ROOT).as_posix())
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
    from pipelines.commands.table import COMMANDS

    headings = re.findall(r"^## farspan (.+)$", generated["commands.md"], re.MULTILINE)
    assert sorted(headings) == sorted(command.name for command in COMMANDS)
    documents = generated["commands.md"].split("## farspan documents\n")[1].split("\n## ")[0]
    assert "`--held-out HELD_OUT`\n: share of documents reserved for evaluation" in documents
    assert "`--workers" in documents
    assert "%%" not in generated["commands.md"]


def test_the_recipe_pages_have_every_recipe(generated):
    files = sorted((ROOT / "trainer" / "recipes").rglob("*.toml"))
    for recipe in files:
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


def test_the_generated_pages_are_not_committed():
    ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    assert {"/docs/_build/", "/docs/generated/"} <= set(ignored)


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", f"{tmp_path}/trees", str(DOCS)]
    done = subprocess.run([*command, f"{tmp_path}/html"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("index", "generated/commands", "generated/api", "generated/tutorial", "howto/publish"):
        assert (tmp_path / "html" / f"{name}.html").stat().st_size > 5_000
