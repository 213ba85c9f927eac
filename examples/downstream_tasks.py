"""Pretraining text and five tasks from English Wikipedia's lead sections, as JSON lines for ``farspan pairs``.

- ``sections``: the sections of the training split, to pretrain on.
- ``topics``: sections and their topics.
- ``titles``: sections and their titles.
- ``wiki-what``: questions about many sections in one long document: the description of a title, the title of a
  description, and the topic with most sections. With ``--linked CORPUS``, a document is a row of a corpus of similar
  sections, so the other sections are hard distractors.
- ``wiki-lead``: many sections without their first sentences; these are to be written (PRIMERA's layout).
- ``second-alone``, ``second-related``, ``second-random``: the first sentence of a section, and the rest as reference.
  Before it stands nothing, the section that shares the most rare words with it, or one of the same sections at random.
- ``chains``: facts of one to several hops between sentences of the same text; see ``fact_chains.py``.

A line is ``{"id", "documents", "query", "references", "split", ...}``; all further fields are attributes. Sections are
dealt to the splits by a hash of their titles, so no text is in two splits. Everything follows from the seed.

    python examples/downstream_tasks.py chains chains.jsonl --words 3000
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from fact_chains import NAMES, Chains, Places, asked, draw, with_facts
from wikipedia_text import Record, described_pages, write_json_lines

from corpora.schemas.corpus import open_corpus

SPLITS = {"train": 0.8, "validation": 0.1, "test": 0.1}
_WORD = re.compile(r"\w+")
FACTS = Chains()
_ALL_NAMES = frozenset(NAMES)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])")

Line = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Size:
    """Size of a task."""

    train_documents: int = 320  # number of documents of the training split
    documents: int = 40  # number of documents of the validation split, and of the test split
    words: int = 3000  # approximate words of a document; in `chains` at most, without the facts
    questions: int = 40  # maximum number of questions about a document

    def of(self, split: str) -> int:
        """Number of documents of a split."""
        return self.train_documents if split == "train" else self.documents


def split_of(title: str, seed: int = 0) -> str:
    """The split of a section: a function of its title and the seed."""
    digest = blake2b(title.encode(), digest_size=8, salt=seed.to_bytes(16, "little")).digest()
    place, end = int.from_bytes(digest, "little") / 2**64, 0.0
    for split, share in SPLITS.items():
        end += share
        if place < end:
            return split
    return "test"


def sections(pages: Iterable[Record]) -> Iterator[Line]:
    """Title and text of the sections of the training split."""
    return ({"title": page["title"], "text": page["text"]} for page in pages if split_of(page["title"]) == "train")


def topics(pages: Iterable[Record]) -> Iterator[Line]:
    """Lead sections and their topics, without the sections that have none."""
    for page in pages:
        if page["topic"] not in ("", "Uncategorized"):
            yield {
                "id": page["title"],
                "documents": [page["text"]],
                "references": [page["topic"]],
                "split": split_of(page["title"]),
            }


def titles(pages: Iterable[Record]) -> Iterator[Line]:
    """Lead sections and their titles."""
    for page in pages:
        split = split_of(page["title"])
        yield {"id": page["title"], "documents": [page["text"]], "references": [page["title"]], "split": split}


def pages_of(pages: Sequence[Record], split: str, seed: int) -> list[Record]:
    """The sections of a split, in the order of ``pages``."""
    return [page for page in pages if split_of(page["title"], seed) == split]


def bundles(pages: Sequence[Record], count: int, words: int, rng: np.random.Generator) -> Iterator[list[Record]]:
    """Draw ``count`` bundles of different sections with about ``words`` words together."""
    if not pages:
        return
    for _ in range(count):
        yield up_to([pages[index] for index in rng.permutation(len(pages)).tolist()], words)


def up_to(pages: Sequence[Record], words: int) -> list[Record]:
    """The first sections, until they have ``words`` words together."""
    taken: list[Record] = []
    total = 0
    for page in pages:  # few of thousands are counted
        taken.append(page)
        total += len(page["text"].split())
        if total >= words:
            break
    return taken


def linked_rows(corpus: Path) -> list[list[str]]:
    """The titles in each row of a corpus whose documents have their titles as ids (``--id-field title``).

    A title belongs to the first row that has it, so that rows can be dealt to splits.
    """
    seen: set[str] = set()
    rows = []
    for batch in open_corpus(corpus).batches():
        for ids in batch.column("document_ids").to_pylist():
            titles = dict.fromkeys(name.partition(":")[2] for name in ids)
            rows.append([title for title in titles if title not in seen])
            seen.update(titles)
    return rows


def linked_bundles(
    pages: Sequence[Record], rows: Sequence[Sequence[str]], split: str, size: Size, seed: int
) -> Iterator[list[Record]]:
    """The sections of each row of a split, up to ``size``; a row is dealt by its first title."""
    by_title = {page["title"]: page for page in pages}
    own = [[by_title[title] for title in row if title in by_title] for row in rows]
    own = [row for row in own if row and split_of(row[0]["title"], seed) == split]
    return (up_to(row, size.words) for row in own[: size.of(split)])


def wiki_what(
    pages: Sequence[Record], size: Size, seed: int = 0, rows: Sequence[Sequence[str]] | None = None
) -> Iterator[Line]:
    """Questions about the sections of a document, answered by a description, a title or a topic.

    Sections without a description are left out. ``rows`` are titles of the sections of each document; None draws the
    sections at random.
    """
    described = [page for page in pages if page["description"]]
    for split in SPLITS:
        rng = np.random.default_rng([seed, 1, *split.encode()])
        if rows is None:
            documents = bundles(pages_of(described, split, seed), size.of(split), size.words, rng)
        else:
            documents = linked_bundles(described, rows, split, size, seed)
        for number, bundle in enumerate(documents):
            text = "\n\n".join(f"{page['title']}\n{page['text']}" for page in bundle)
            topics = Counter(page["topic"] for page in bundle)
            most = max(topics.values())
            questions = [("topic", "Which topic has most sections?", [name for name in topics if topics[name] == most])]
            for page in bundle:
                same = [other["title"] for other in bundle if other["description"] == page["description"]]
                questions.append(("what", f"What is {page['title']}?", [page["description"]]))
                questions.append(("which", f"What is described as {page['description']}?", same))
            chosen = [0, *(1 + rng.permutation(len(questions) - 1)[: size.questions - 1])]
            for turn, place in enumerate(chosen):
                kind, query, references = questions[place]
                yield _line(f"what-{split}-{number}-{turn}", [text], query, references, split, kind=kind)


def wiki_lead(pages: Sequence[Record], size: Size, seed: int = 0) -> Iterator[Line]:
    """Sections without their first sentences, as separate documents; the sentences are to be written."""
    for split in SPLITS:
        rng = np.random.default_rng([seed, 2, *split.encode()])
        some = []
        for page in pages_of(pages, split, seed):
            first, *rest = _SENTENCE_END.split(page["text"], maxsplit=1)
            if rest:
                some.append({**page, "first": first, "text": rest[0]})
        for number, bundle in enumerate(bundles(some, size.of(split), size.words, rng)):
            summary = " ".join(page["first"] for page in bundle)
            yield _line(f"lead-{split}-{number}", [page["text"] for page in bundle], "", [summary], split)


def second(pages: Sequence[Record], size: Size, before: str, seed: int = 0) -> Iterator[Line]:
    """Sections of up to 60 words without what follows their first sentence, of the splits that are not trained on.

    There are ``size.documents`` of them. ``before`` is ``alone``, or another section that comes before: ``related`` or
    ``random``.
    """
    pool = [page for page in pages if split_of(page["title"], seed) != "train" and len(page["text"].split()) <= 60]
    words = [set(_WORD.findall(page["text"].lower())) for page in pool]
    known = {word: index for index, word in enumerate(sorted(set().union(*words)))}
    present = np.zeros((len(pool), len(known)), np.float32)
    for row, of_page in enumerate(words):
        present[row, [known[word] for word in of_page]] = 1
    rarity = np.floor(np.log2(len(pool) / present.sum(0)))
    shared = (present * rarity) @ present.T  # exact: sums of small whole numbers
    np.fill_diagonal(shared, -1)
    parts = [_SENTENCE_END.split(page["text"], maxsplit=1) for page in pool]
    chosen = [index for index in np.random.default_rng([seed, 4]).permutation(len(pool)) if len(parts[index]) == 2]
    chosen = chosen[: size.documents]
    first = shared.argmax(1)[chosen]
    if before == "random":  # the same sections, before others
        first = np.roll(first, 1)
    for number, index in enumerate(chosen):
        begin, rest = parts[index]
        documents = [begin] if before == "alone" else [pool[first[number]]["text"], begin]
        yield _line(f"second-{number}", documents, "", [rest], "test")


def chains(pages: Sequence[Record], size: Size, seed: int = 0, facts: Chains = FACTS) -> Iterator[Line]:
    """Facts in the text of sections: a chain gives one name a thing, and each later name what the one before has.

    A question with h hops asks for a name that is h facts away from its thing.
    """
    for split in SPLITS:
        rng = np.random.default_rng([seed, 3, *split.encode()])
        for number, bundle in enumerate(bundles(pages_of(pages, split, seed), size.of(split), size.words, rng)):
            drawn = draw(facts, rng)
            sentences = [sentence for page in bundle for sentence in _SENTENCE_END.split(page["text"])]
            other = [sentence for sentence in sentences if _ALL_NAMES.isdisjoint(_WORD.findall(sentence))]
            ends = np.cumsum([len(sentence.split()) for sentence in other])
            other = other[: int(np.searchsorted(ends, size.words, "right"))]
            together = bool(rng.random() < facts.together)
            places: Places = "apart" if split != "train" else "together" if together else "anywhere"
            text = with_facts(other, drawn, places, rng)
            for turn, names in enumerate(asked(facts, split, size.questions, rng)):
                hops = max(hop for _, hop in names) + 1
                query, answer = drawn.question(names), drawn.answer(names)
                yield _line(f"chains-{split}-{number}-{turn}", [text], query, [answer], split, hops=hops)


def _line(name: str, documents: list[str], query: str, references: list[str], split: str, **attributes: Any) -> Line:
    return {
        "id": name,
        "documents": documents,
        "query": query,
        "references": references,
        "split": split,
        **attributes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a downstream task as JSON lines for `farspan pairs`.")
    parser.add_argument(
        "task",
        choices=(
            *("sections", "topics", "titles", "wiki-what", "wiki-lead", "chains"),
            *("second-alone", "second-related", "second-random"),
        ),
    )
    parser.add_argument("output", type=Path)
    parser.add_argument("--train-documents", type=int, default=Size.train_documents, help="(default: 320)")
    parser.add_argument("--documents", type=int, default=Size.documents, help="in validation and test (default: 40)")
    parser.add_argument("--words", type=int, default=Size.words, help="of a document (default: 3000)")
    parser.add_argument("--questions", type=int, default=Size.questions, help="about a document (default: 40)")
    parser.add_argument("--linked", type=Path, metavar="CORPUS", help="documents of wiki-what are rows of this corpus")
    parser.add_argument("--chains", type=int, default=Chains.count, help="in a document (default: 3)")
    parser.add_argument("--hops", type=int, default=Chains.hops, help="of a chain (default: 2)")
    parser.add_argument("--names", type=int, default=Chains.names, help="different ones (default: 8)")
    parser.add_argument("--things", type=int, default=Chains.things, help="different ones (default: 8)")
    parser.add_argument(
        "--together",
        type=float,
        default=Chains.together,
        help="share of training documents with the facts of a chain side by side (default: 0.5)",
    )
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    size = Size(
        train_documents=given.train_documents,
        documents=given.documents,
        words=given.words,
        questions=given.questions,
    )
    pages = list(described_pages())
    if given.task == "wiki-what":
        made = wiki_what(pages, size, given.seed, linked_rows(given.linked) if given.linked else None)
    elif given.task == "chains":
        facts = Chains(
            count=given.chains, hops=given.hops, names=given.names, things=given.things, together=given.together
        )
        made = chains(pages, size, given.seed, facts)
    elif given.task == "wiki-lead":
        made = wiki_lead(pages, size, given.seed)
    elif given.task.startswith("second"):
        made = second(pages, size, given.task.partition("-")[2], given.seed)
    else:
        made = {"sections": sections, "topics": topics, "titles": titles}[given.task](pages)
    lines = write_json_lines(given.output, made)
    print(f"{given.output}: {lines:,} lines")


if __name__ == "__main__":
    main()
