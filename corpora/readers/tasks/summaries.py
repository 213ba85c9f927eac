"""Summaries of one document: arXiv and PubMed, GovReport, QMSum and SummScreen."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any

from corpora.errors import nearest
from corpora.readers.raw_tasks import Place, RawDocument, RawPair, RawRecord, RawTask, text_beside, text_key
from corpora.readers.records import BadRecord
from corpora.readers.task_files import by_name, index_files, json_lines, json_object

_MARKS = re.compile(r"</?S>")
_ARTICLE, _SECTIONS = "article_text", "sections"
_ARTICLES = r"(?!.*vocab).*\.(txt|jsonl|json)(\.(gz|bz2|xz|zst))?|.*\.(zip|tar|tgz|tar\.(gz|bz2|xz|zst))"
_IDS = re.compile(r"(gao|crs)_(train|valid|test)\.ids")
_RECOMMENDATIONS = re.compile(r"\s*what gao recommends\s*", re.IGNORECASE)
_QUERIES = {"general": "general_query_list", "specific": "specific_query_list"}
_EPISODES = r"(fd|tms)_(train|dev|test)\.json"
_RAW_EPISODES = ("../../SummScreen_raw/", "../SummScreen_raw/")  # from the folder of the lines


def parse_article(record: RawRecord, place: Place) -> RawTask:
    """Parse an article of arXiv or PubMed, as one document or as one per section, and its abstract.

    Files ``train.txt``, ``val.txt`` and ``test.txt`` of JSON lines ``{article_id, article_text: [sentence],
    abstract_text: ["<S> sentence </S>"], section_names, sections: [[sentence]], labels}``, lowercased and tokenised;
    the two fields of text differ. Source: Cohan et al. 2018, "A Discourse-Aware Attention Model", section 4, and its
    repository.
    """
    field, known = place.options.text_field, (_ARTICLE, _SECTIONS)
    if field not in known:
        raise BadRecord("missing_text", f"--text-field {field}{nearest(field, known)}: give one of {', '.join(known)}")
    key = record.text_of("article_id")
    documents = list(_sections(record, key)) if field == _SECTIONS else [RawDocument(key, _lines(record, _ARTICLE))]
    abstract = [" ".join(_MARKS.sub(" ", sentence).split()) for sentence in _strings(record, "abstract_text")]
    summary = "\n".join(sentence for sentence in abstract if sentence)
    return RawTask.of(documents, pair_id=key, targets=(summary,) if summary else ())


def _strings(record: Mapping[str, Any], name: str) -> list[str]:
    """Return a field that has to be a list of strings."""
    value = record.get(name)
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        shown = json.dumps(value, default=str)[:100]
        raise BadRecord("not_a_string", f"{name!r} is not a list of strings but {shown}")
    return value


def _lines(record: Mapping[str, Any], name: str) -> str:
    return "\n".join(_strings(record, name))


def _sections(record: RawRecord, key: str) -> Iterator[RawDocument]:
    """Yield the sections of an article that have text."""
    names, sections = _strings(record, "section_names"), record.get("sections")
    if not isinstance(sections, list) or len(sections) != len(names):
        raise BadRecord("missing_text", f"'sections' is not a list of {len(names)} sections, one for each name")
    for number, name in enumerate(names):
        text = _lines({"sections": sections[number]}, "sections")
        if text.strip():
            yield RawDocument(f"{key}#{number}", f"{name}\n{text}")


def report_ids(data: bytes, place: Place) -> list[tuple[str, str]]:
    """List the ids in a file of GovReport, each as ``agency/id``."""
    if not (name := _IDS.fullmatch(place.name)):
        raise BadRecord("unsafe_name", f"{place.name} is not called gao_train.ids, crs_valid.ids or similar")
    keys = [f"{name[1]}/{line.strip()}" for line in data.decode(errors="replace").splitlines() if line.strip()]
    return [(key, key) for key in keys]


def parse_report_id(key: str, place: Place) -> RawTask:
    """Parse a report of an agency of the US Congress, GAO or CRS, and the summary that experts wrote for it.

    Source: Huang et al. 2021, "Efficient Attentions for Long Document Summarization", section 4; layout as read by
    tensorflow_datasets: summarization/gov_report::

        gov-report/split_ids/{gao,crs}_{train,valid,test}.ids
        gov-report/gao/ID.json   {"id", "title", "report": [SECTION], "highlight": [SECTION]}
        gov-report/crs/ID.json   {"id", "title", "reports": SECTION, "summary": ["paragraph"]}
        SECTION = {"section_title": "...", "paragraphs": ["..."], "subsections": [SECTION]}
    """
    if not re.fullmatch(r"(gao|crs)/[^/\\]+", key) or key.endswith(("/..", "/.")):
        raise BadRecord("unsafe_name", f"{key[:100]!r} is not the id of a report")
    report = json_object(text_beside(place, f"../{key}.json").encode())
    agency = posixpath.dirname(key)
    if agency == "gao":
        text = "\n".join(line for section in report.objects_of("report") for line in _section_lines(section))
        highlights = [part for part in report.objects_of("highlight") if not _recommends(part)]
        summary = "\n".join(line for part in highlights for line in _section_lines(RawRecord(part, section_title="")))
    else:
        text = "\n".join(_section_lines(report.object_of("reports")))
        summary = "\n".join(report.require_texts("summary"))
    return _report(key, key, text, summary, {"agency": agency})


def parse_report(record: RawRecord, place: Place) -> RawTask:
    """Parse a line with ``report`` or ``document``, and ``summary``, as GovReport has them on the hub."""
    text = record.require_text("report" if "report" in record else "document")
    key = text_key(text)
    name = record.get("id")
    return _report(key, name if isinstance(name, str) and name else key, text, record.require_text("summary"), {})


def _section_lines(section: RawRecord) -> Iterator[str]:
    """Yield title, paragraphs and subsections of a section, in order."""
    lines = [section.optional_text("section_title"), *section.list_of("paragraphs", str)]
    yield from (line for line in lines if line.strip())
    try:
        for inner in section.objects_of("subsections") if "subsections" in section else ():
            yield from _section_lines(inner)
    except RecursionError:
        raise BadRecord("too_deep", "sections are nested too deeply") from None


def _recommends(section: RawRecord) -> bool:
    return _RECOMMENDATIONS.fullmatch(section.optional_text("section_title")) is not None


def _report(key: str, pair_id: str, text: str, summary: str, attributes: dict[str, Any]) -> RawTask:
    for name, value in (("report", text), ("summary", summary)):
        if not value.strip():
            raise BadRecord("empty_text", f"the {name} is empty")
    return RawTask.of([RawDocument(key, text)], pair_id=pair_id, targets=(summary,), attributes=attributes)


def parse_meeting(meeting: RawRecord, place: Place) -> RawTask:
    """Parse a meeting and its queries, general (about the whole meeting) and specific (about some turns).

    Source: Zhong et al. 2021, "QMSum"; layout of Yale-LILY/QMSum: data/ALL/jsonl/{train,val,test}.jsonl, one meeting
    per line::

        {"topic_list": [...], "general_query_list": [{"query": "...", "answer": "..."}],
         "specific_query_list": [{"query": "...", "answer": "...", "relevant_text_span": [["459", "530"]]}],
         "meeting_transcripts": [{"speaker": "...", "content": "..."}]}

    Attribute ``turns`` has the first and last turn of each relevant span. Meetings have no id, so a hash of the text
    is the key.
    """
    turns = meeting.objects_of("meeting_transcripts")
    said = [(turn.optional_text("speaker"), turn.optional_text("content")) for turn in turns]
    if not any(content.strip() for _, content in said):
        raise BadRecord("empty_text", "'meeting_transcripts' has no turn with content")
    text = "\n".join(f"{speaker}: {content}" for speaker, content in said)
    key = text_key(text)
    queries = [(kind, *item) for kind, name in _QUERIES.items() for item in enumerate(meeting.objects_of(name))]

    def pair(item: tuple[str, int, RawRecord]) -> RawPair:
        kind, number, query = item
        attributes: dict[str, Any] = {"kind": kind}
        if kind == "specific":
            attributes["turns"] = [_turns(span) for span in query.list_of("relevant_text_span", list)]
        return RawPair(
            pair_id=f"{key}_{kind}_{number}",
            documents=(key,),
            query=query.require_text("query"),
            targets=(query.require_text("answer"),),
            attributes=attributes,
        )

    return RawTask.of_questions([RawDocument(key, text)], queries, pair)


def _turns(span: list[Any]) -> list[int]:
    """Parse the first and last turn of a span."""
    try:
        first, last = (int(turn) for turn in span)
    except (TypeError, ValueError) as error:
        raise BadRecord("broken_span", f"the span {str(span)[:100]} is not its first and last turn") from error
    return [first, last]


def parse_episode(record: RawRecord, place: Place) -> RawTask:
    """Parse the transcript of a television episode of ForeverDreaming (fd) or TVMegaSite (tms), and its recap.

    Source: Chen et al. 2022, "SummScreen", section 3; layout as read by mingdachen/SummScreen: data_utils.py, and
    tensorflow_datasets: summarization/summscreen::

        SummScreen/{ForeverDreaming,TVMegaSite}/{fd,tms}_{train,dev,test}.json
        {"filename": "...", "Transcript": ["..."], "Recap": ["..."]}
        SummScreen_raw/{fd,tms}/FILENAME    {"Transcript": ["..."], "Recap": ["..."], "Show Title": "..."}
    """
    text = "\n".join(record.require_texts("Transcript"))
    recap = "\n".join(record.require_texts("Recap"))
    site = re.match("fd|tms", place.name)
    name = record.get("filename")
    key = f"{site[0]}/{name.removesuffix('.json')}" if site and isinstance(name, str) and name else text_key(text)
    show = record.get("Show Title")
    attributes = {"show": show} if isinstance(show, str) and show else {}
    return RawTask.of([RawDocument(key, text)], pair_id=key, targets=(recap,), attributes=attributes)


def parse_raw_episode(record: RawRecord, place: Place) -> RawTask:
    """Parse the original text, one file per episode, of the episode that a line names.

    These files name no splits and include episodes that the authors filtered out, so the lines of the tokenised files
    determine the episodes and their splits.
    """
    name = record.require_text("filename")
    site = re.match("fd|tms", place.name)
    if site is None or "/" in name or name.startswith("."):
        raise BadRecord("unsafe_name", f"{name[:100]!r} in {place.name} is not the file of an episode of fd or tms")
    episode = json_object(text_beside(place, *(f"{folder}{site[0]}/{name}" for folder in _RAW_EPISODES)).encode())
    return parse_episode(RawRecord(episode, filename=name), place)


_REPORTS = {r".*\.ids": index_files(report_ids, parse_report_id, ""), r".*\.(jsonl|zip)": json_lines(parse_report)}
READERS = {
    **dict.fromkeys(("arxiv", "pubmed"), json_lines(parse_article, _ARTICLES, text_field=_ARTICLE)),
    "gov-report": by_name(_REPORTS),
    "qmsum": json_lines(parse_meeting, r".*\.jsonl|.*\.zip"),
    "summ-screen": json_lines(parse_episode, _EPISODES),
    "summ-screen-raw": json_lines(parse_raw_episode, _EPISODES),
}
