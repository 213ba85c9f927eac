"""Questions about documents: ContractNLI, HotpotQA, Qasper, QuALITY, TriviaQA and WikiHop."""

from __future__ import annotations

import re
from typing import Any

from corpora.readers.raw_tasks import Place, RawDocument, RawPair, RawRecord, RawTask, text_beside, text_key
from corpora.readers.records import BadRecord
from corpora.readers.task_files import json_document, json_field, json_lines, json_object, json_records, whole_files

_CHOICES = {"Entailment": "Entailment", "Contradiction": "Contradiction", "NotMentioned": "Not mentioned"}
_PAGES = re.compile(r"QuALITY\.v[\d.]+\.(train|dev|test)")
_LETTERS = "ABCDEFGH"
_EVIDENCE = "../evidence/wikipedia/"
Contract = tuple[RawRecord, RawRecord]  # its document, and the labels of the file


def contracts(data: bytes, place: Place) -> list[tuple[str, Contract]]:
    """List the contracts of a file of ContractNLI, each with all hypotheses."""
    file = json_object(data)
    labels = file.object_of("labels")
    return [(str(number), (document, labels)) for number, document in enumerate(file.objects_of("documents"))]


def parse_contract(contract: Contract, place: Place) -> RawTask:
    """Parse one of 607 contracts, which entails, contradicts or does not mention each of 17 hypotheses.

    Source: Koreeda and Manning 2021, "ContractNLI", section 3; fields as read by stanfordnlp/contract-nli-bert:
    contract_nli/dataset/loader.py. Files ``train.json``, ``dev.json``, ``test.json``, each one object::

        {"documents": [{"id": 34, "text": "...", "spans": [[0, 50]], "annotation_sets": [{"annotations":
             {"nda-1": {"choice": "Entailment", "spans": [3, 7]}}}]}],
         "labels": {"nda-1": {"hypothesis": "..."}}}

    Attribute ``evidence`` holds the [start, stop) characters of the evidence.
    """
    document, labels = contract
    key = document.id_of("id")
    sets = document.objects_of("annotation_sets")
    if len(sets) != 1:
        raise BadRecord("annotation_sets", f"{len(sets)} sets of annotations, where the data set has one")
    annotations = sets[0].object_of("annotations")
    spans = document.list_of("spans", list)

    def pair(label: str) -> RawPair:
        annotation = annotations.object_of(label)
        choice = annotation.require_text("choice")
        if choice not in _CHOICES:
            raise BadRecord("unknown_label", f"{label}: 'choice' is {choice!r}, not one of {', '.join(_CHOICES)}")
        numbers = annotation.list_of("spans", int)
        return RawPair(
            pair_id=f"{key}_{label}",
            documents=(key,),
            query=labels.object_of(label).require_text("hypothesis"),
            targets=(_CHOICES[choice],),
            options=tuple(_CHOICES.values()),
            attributes={"hypothesis": label, "evidence": [spans[n] for n in numbers if 0 <= n < len(spans)]},
        )

    return RawTask.of_questions([RawDocument(key, document.require_text("text"))], annotations, pair)


def parse_hotpot_qa(record: RawRecord, place: Place) -> RawTask:
    """Parse a question that needs two Wikipedia paragraphs, among distractors or paragraphs found by a search engine.

    Source: Yang et al. 2018, "HotpotQA"; fields as read by hotpotqa/hotpot: prepro.py. One JSON array in each of
    ``hotpot_train_v1.1.json``, ``hotpot_dev_distractor_v1.json``, ``hotpot_dev_fullwiki_v1.json`` and
    ``hotpot_test_fullwiki_v1.json``, which has no answers::

        [{"_id": "...", "question": "...", "answer": "...", "type": "bridge", "level": "hard",
          "supporting_facts": [["Title", 0]], "context": [["Title", ["First sentence.", " Second."]]]}]

    A paragraph's key is its title with a hash of the text, so two versions of it are two documents. Attribute
    ``supporting`` has the positions of the supporting paragraphs in the pair.
    """
    paragraphs = [_paragraph(item) for item in record.list_of("context", list)]
    if not paragraphs:
        raise BadRecord("empty_text", "'context' has no paragraph")
    facts = record.list_of("supporting_facts", list) if "supporting_facts" in record else []
    supporting = {str(fact[0]) for fact in facts if fact}
    return RawTask.of(
        [document for _, document in paragraphs],
        pair_id=record.id_of("_id"),
        query=record.require_text("question"),
        targets=(record.require_text("answer"),) if "answer" in record else (),
        attributes={
            **{name: record[name] for name in ("type", "level") if name in record},
            "supporting": [position for position, (title, _) in enumerate(paragraphs) if title in supporting],
        },
    )


def _paragraph(item: list[Any]) -> tuple[str, RawDocument]:
    """Return the title of a paragraph and its document."""
    match item:
        case [str(title), list(sentences)] if all(isinstance(sentence, str) for sentence in sentences):
            text = f"{title}\n{''.join(sentences).strip()}".strip()
            return title, RawDocument(f"{title}#{text_key(text)[:8]}", text)
    raise BadRecord("broken_paragraph", f"{str(item)[:100]} is not a title and a list of sentences")


def parse_qasper(paper: RawRecord, place: Place) -> RawTask:
    """Parse the NLP paper ``place.key`` and its questions, answered by one or several annotators.

    Source: Dasigi et al. 2021, "A Dataset of Information-Seeking Questions and Answers Anchored in Research Papers";
    fields as read by allenai/qasper-led-baseline: qasper_baselines/dataset_reader.py, scripts/evaluator.py. Files
    ``qasper-train-v0.3.json``, ``qasper-dev-v0.3.json``, ``qasper-test-v0.3.json``, each one object, id -> paper::

        {"1909.00694": {"title": "...", "abstract": "...", "full_text": [{"section_name": "...",
             "paragraphs": ["..."]}], "qas": [{"question": "...", "question_id": "...", "answers": [{"answer":
             {"unanswerable": false, "extractive_spans": [], "yes_no": null, "free_form_answer": "..."}}]}]}}
    """

    def pair(question: RawRecord) -> RawPair:
        answers = [qasper_answer(item.object_of("answer")) for item in question.objects_of("answers")]
        return RawPair(
            pair_id=question.require_text("question_id"),
            documents=(place.key,),
            query=question.require_text("question"),
            targets=tuple(text for text, _ in answers),
            attributes={"kinds": [kind for _, kind in answers]},
        )

    lines: list[str] = []
    for section in paper.objects_of("full_text"):
        lines += [section.optional_text("section_name"), *section.list_of("paragraphs", str)]
    text = "\n".join(" ".join(line.split()) for line in lines if line.strip())
    if not text:
        raise BadRecord("empty_text", "'full_text' has no paragraph")
    return RawTask.of_questions([RawDocument(place.key, text)], paper.objects_of("qas"), pair)


def qasper_answer(fields: RawRecord) -> tuple[str, str]:
    """Return the answer as a string, and its kind: none, extractive, abstractive or boolean.

    If an answer has several kinds, which the authors do not intend, the first in their evaluator's order is used.
    """
    if fields.get("unanswerable"):
        return "Unanswerable", "none"
    if fields.get("extractive_spans"):
        return ", ".join(fields.list_of("extractive_spans", str)), "extractive"
    if fields.get("free_form_answer"):
        return fields.require_text("free_form_answer"), "abstractive"
    if fields.get("yes_no") is not None:
        return ("Yes" if fields["yes_no"] else "No"), "boolean"
    raise BadRecord("no_answer", "an answer is neither unanswerable nor extractive, free-form, yes or no")


def parse_quality(record: RawRecord, place: Place) -> RawTask:
    """Parse a story or article of about 5,000 words, and the questions of one writer, with four options each.

    Source: Pang et al. 2022, "QuALITY"; fields as in nyu-mll/quality: README.md. JSON lines named
    ``QuALITY.v1.0.1.htmlstripped.train``, ``.dev``, ``.test``, one line for each article and question writer::

        {"article_id": "...", "set_unique_id": "...", "article": "...", "questions": [{"question": "...",
         "question_unique_id": "...", "options": ["...", "...", "...", "..."], "gold_label": 2, "difficult": 1}]}

    ``gold_label`` counts from 1. Attribute ``hard`` is true for questions that people under time pressure get wrong.
    """
    if _PAGES.fullmatch(place.name):
        stripped = re.sub(r"\.(\w+)$", r".htmlstripped.\1", place.name)
        raise BadRecord("html_text", f"the articles of {place.name} are web pages; give {stripped}")
    key, group = record.id_of("article_id"), record.id_of("set_unique_id")

    def pair(numbered: tuple[int, RawRecord]) -> RawPair:
        number, question = numbered
        options = question.require_texts("options")
        gold = question.get("gold_label")
        if gold is not None and (type(gold) is not int or not 1 <= gold <= len(options)):
            raise BadRecord("unknown_label", f"'gold_label' is {gold!r}, where 1 to {len(options)} are options")
        attributes: dict[str, Any] = {"gold_label": gold} if gold is not None else {}
        if "difficult" in question:
            attributes["hard"] = bool(question["difficult"])
        return RawPair(
            pair_id=question.optional_text("question_unique_id") or f"{group}_{number}",
            documents=(key,),
            query=_with_options(question.require_text("question"), options),
            targets=() if gold is None else (options[gold - 1],),
            options=tuple(options),
            attributes=attributes,
        )

    questions = enumerate(record.objects_of("questions"), 1)
    return RawTask.of_questions([RawDocument(key, record.require_text("article"))], questions, pair)


def _with_options(question: str, options: list[str]) -> str:
    """Format question and options in the layout of SCROLLS."""
    if len(options) > len(_LETTERS):
        raise BadRecord("too_many_options", f"{len(options)} options, more than {len(_LETTERS)}")
    return "\n".join([question, "", *(f" ({letter}) {text}" for letter, text in zip(_LETTERS, options, strict=False))])


def parse_trivia_qa(record: RawRecord, place: Place) -> RawTask:
    """Parse a trivia question and the Wikipedia pages that a linker found for it; a missing page is a reject alone.

    Source: Joshi et al. 2017, "TriviaQA", section 3; fields as in mandarjoshi90/triviaqa: samples/triviaqa_sample.json,
    and utils/dataset_utils.py. Questions and pages are side by side::

        qa/wikipedia-train.json, qa/wikipedia-dev.json, qa/wikipedia-test-without-answers.json, qa/web-*.json
        evidence/wikipedia/FILENAME

        {"Data": [{"Question": "...", "QuestionId": "tc_33", "Answer": {"Value": "...", "Aliases": ["..."]},
                   "EntityPages": [{"Title": "...", "Filename": "Some_Page.txt"}], "SearchResults": [...]}]}

    Search results are ignored, so a question of the web files that has only these is rejected. The target is the
    value, and references are value and aliases, each once; both are empty if answers are withheld.
    """
    verified = place.name.startswith("verified-")
    if verified and not record.get("QuestionPartOfVerifiedEval", True):
        return RawTask([], [])
    pages: list[RawDocument] = []
    missing: list[BadRecord] = []
    for page in record.objects_of("EntityPages"):
        if verified and not page.get("DocPartOfVerifiedEval", True):
            continue
        try:
            pages.append(_page(page, place))
        except BadRecord as bad:
            missing.append(bad)
    if not pages:
        raise missing[0] if missing else BadRecord("empty_text", "'EntityPages' names no page")
    values: list[str] = []
    if record.get("Answer") is not None:
        answer = record.object_of("Answer")
        values = [answer.require_text("Value"), *(answer.require_texts("Aliases") if answer.get("Aliases") else [])]
    return RawTask.of(
        pages,
        bad=missing,
        pair_id=record.id_of("QuestionId"),
        query=record.require_text("Question"),
        targets=tuple(values[:1]),
        references=tuple(dict.fromkeys(values)),
    )


def _page(page: RawRecord, place: Place) -> RawDocument:
    """Read a page and put its title before it."""
    name = page.require_text("Filename")
    if ".." in name.split("/") or name.startswith("/"):
        raise BadRecord("unsafe_name", f"'Filename' {name[:100]!r} leads out of the folder of pages")
    text = text_beside(place, _EVIDENCE + name)
    return RawDocument(name.removesuffix(".txt"), f"{page.optional_text('Title')}\n{text}".strip())


def parse_wiki_hop(record: RawRecord, place: Place) -> RawTask:
    """Parse a Wikidata statement without its object, which is one of some candidates, and several paragraphs.

    Source: Welbl et al. 2018, "Constructing Datasets for Multi-hop Reading Comprehension Across Documents"; fields as
    in the card of QAngaroo on the hub. An array in each of ``train.json`` and ``dev.json``; the test set is not
    public::

        [{"id": "WH_train_0", "query": "country_of_citizenship some name", "answer": "...",
          "candidates": ["..."], "supports": ["..."]}]
    """
    documents = [RawDocument(text_key(text), text) for text in record.require_texts("supports")]
    candidates = tuple(record.require_texts("candidates"))
    answer = record.require_text("answer")
    if answer not in candidates:
        raise BadRecord("unknown_label", f"the answer {answer[:100]!r} is not among the {len(candidates)} candidates")
    key, query = record.id_of("id"), record.require_text("query")
    return RawTask.of(documents, pair_id=key, query=query, targets=(answer,), options=candidates)


READERS = {
    "contract-nli": whole_files(contracts, parse_contract, r"(train|dev|test)\.json"),
    "hotpot-qa": json_records(parse_hotpot_qa, r"hotpot_.*\.json"),
    "qasper": json_document(parse_qasper, r".*\.json"),
    "quality": json_lines(parse_quality, r"QuALITY.*htmlstripped\.(train|dev|test)|.*\.(jsonl|json|zip)"),
    "trivia-qa": json_field(parse_trivia_qa, "Data", r"wikipedia-.*\.json"),
    "wiki-hop": json_records(parse_wiki_hop, r"(train|dev)\.json"),
}
