"""Systems under comparison: predictions, sources, intervals; files for the SCROLLS server."""

import io
import json
import os
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import farspan
from corpora.errors import FarspanError
from corpora.readers.tasks.suites import SUBSETS
from corpora.schemas.pairs import open_pairs
from corpora.storage.ragged import Ragged
from corpora.tokenizers.load import load_tokenizer_of
from objectives.metrics.metrics import compute_copied_shares, load_metric
from pipelines.evaluation.evaluate import length_bins, measure
from pipelines.evaluation.submit import csv_bytes, submit
from pipelines.evaluation.systems import Questions, System, compute_copied, read_json, read_systems
from tests.artefacts import make_documents, make_pairs, make_predictions


def written(path, content) -> str:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_folders_and_files_say_the_same(made, tmp_path):
    texts = dict(zip(made.ids, (own[-1] for own in made.references), strict=True))
    backwards = written(tmp_path / "p.json", dict(reversed(texts.items())))
    questions, (first, second) = read_systems([made.good, backwards])
    assert list(first.texts) == list(second.texts) == list(texts.values())
    assert (questions.split, questions.ids, questions.references) == ("validation", made.ids, made.references)
    assert (first.config["generation"], second.config) == ({"beams": 1}, {})
    _, (alone,) = read_systems([backwards], made.pairs, "validation")
    assert alone == second


def test_the_option_with_the_tokens_of_a_target_is_its_reference(made):
    """A tokenizer may not give back every text, and references are the texts that are compared."""
    questions, _ = read_systems([made.good])
    assert [options[0] for options in questions.options] == [own[0] for own in questions.references]
    assert {len(options) for options in questions.options} == {3}


def test_attributes(made):
    questions, _ = read_systems([made.good])
    assert set(questions.attributes("hard")) == {"true", "false", "none"}
    assert set(questions.attributes("subset")) == {"quality"}
    assert set(questions.attributes("hops", "")) == {""}
    with pytest.raises(FarspanError, match="split validation has attribute 'hops'; attributes: hard, subset"):
        questions.attributes("hops")


def test_predictions_for_other_pairs(made, tmp_path):
    others = make_pairs(str(tmp_path / "p"), make_documents(str(tmp_path / "d"), seed=1))
    other = make_predictions(str(tmp_path / "g"), others)
    with pytest.raises(FarspanError, match=f"^{other}: predictions for other pairs than those of {made.good}; only"):
        read_systems([made.good, other])
    with pytest.raises(FarspanError, match=f"{made.good}: its predictions answer other pairs than those in"):
        read_systems([made.good], str(tmp_path / "p"))


def test_pairs_and_documents_that_were_moved(tmp_path):
    documents, pairs = str(tmp_path / "d"), str(tmp_path / "p")
    system = make_predictions(str(tmp_path / "g"), make_pairs(pairs, make_documents(documents)))
    before = read_systems([system])[0].ids
    os.rename(documents, tmp_path / "d2")
    with pytest.raises(FarspanError, match="give it: --documents FOLDER"):
        read_systems([system])
    os.rename(pairs, tmp_path / "p2")
    with pytest.raises(FarspanError, match="give it: --pairs FOLDER"):
        read_systems([system])
    moved, _ = read_systems([system], str(tmp_path / "p2"), documents=str(tmp_path / "d2"))
    assert moved.ids == before


def test_predictions_of_another_split(made, tmp_path):
    train = make_predictions(str(tmp_path / "train"), made.pairs, "train")
    with pytest.raises(FarspanError, match=f"{train}: predictions of split train, while those of {made.good} are of"):
        read_systems([made.good, train])
    with pytest.raises(FarspanError, match="its predictions are of split validation, not test; leave --split out"):
        read_systems([made.good], None, "test")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            lambda ids: dict.fromkeys(ids[2:], "a"),
            "no prediction for 2 of the 40 pairs in .*: pair-2; pair-5; generate",
        ),
        (lambda ids: dict.fromkeys([*ids, "new"], "a"), "1 prediction of ids that split validation of .*: new; leave"),
        (lambda _: '{"pair-2": "a", "pair-2": "b"}', "pair 'pair-2' has two predictions"),
        (lambda _: '{"pair-2": "a \\ud800"}', "the prediction of 'pair-2' holds .*, half of a surrogate pair"),
        (lambda _: '{"pair-2\\udc00": "a"}', "the prediction of 'pair-2.*' holds .*, half of a surrogate pair"),
    ],
)
def test_ids_and_texts_that_do_not_fit_the_pairs(made, tmp_path, content, message):
    path = written(tmp_path / "p.json", content(made.ids))
    with pytest.raises(FarspanError, match=f"^{path}: {message}"):
        read_systems([path], made.pairs, "validation")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "predictions are one JSON object"),
        ('["a"]', "predictions are one JSON object"),
        ("3", "predictions are one JSON object"),
        ('{"a": null}', "the prediction of 'a' is null; give a text"),
        ('{"a": {"b": "c"}}', "the prediction of 'a' is"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON: its brackets are nested too deep"),
    ],
)
def test_files_of_another_kind(tmp_path, content, message):
    with pytest.raises(FarspanError, match=f"p.json: {message}"):
        read_json(written(tmp_path / "p.json", content))


def test_an_empty_object_a_missing_file_and_a_pipe(tmp_path):
    assert read_json(written(tmp_path / "p.json", "{}")) == []
    with pytest.raises(FarspanError, match=r"none\.json: No such file"):
        read_json(str(tmp_path / "none.json"))
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(FarspanError, match=r"pipe\.json: a named pipe, not a regular file"):
        read_json(str(tmp_path / "pipe.json"))


def test_a_file_alone_needs_pairs_and_split(made, tmp_path):
    with pytest.raises(FarspanError, match="give --pairs DIR and --split NAME"):
        read_systems([written(tmp_path / "p.json", {})], made.pairs)


def test_pairs_without_reference(made, tmp_path):
    pairs = make_pairs(str(tmp_path / "p"), str(made.root / "documents"), max_targets=0, splits=["test"])
    questions, _ = read_systems([make_predictions(str(tmp_path / "g"), pairs, "test", ["a"] * 24)])
    assert isinstance(questions, Questions)
    with pytest.raises(FarspanError, match="pair 'pair-0' of split test has no reference; evaluate a split with known"):
        _ = questions.references
    with pytest.raises(FarspanError, match="pair 'pair-0' has no options to choose from"):
        _ = questions.options


def tokens_of(questions: Questions) -> list[list[np.ndarray]]:
    documents = questions.pairs.documents
    rows = Ragged.from_arrow(documents.take(range(len(documents))).combine_chunks().column("tokens").chunk(0))
    return [[rows[row] for row in own] for own in questions.table.column("document_rows").to_pylist()]


@pytest.fixture(scope="module")
def questions(tmp_path_factory) -> Questions:
    """Two documents for each pair, each document in two pairs or more."""
    root = tmp_path_factory.mktemp("sources")
    documents = make_documents(str(root / "d"), shards=2, documents=8)
    return Questions(open_pairs(make_pairs(str(root / "p"), documents, 60, documents_per_pair=2)), "validation")


def test_lengths_are_those_of_all_documents(questions):
    assert questions.document_lengths.tolist() == [sum(map(len, own)) for own in tokens_of(questions)]


def test_copies_are_looked_for_in_all_documents(questions):
    tokenizer = load_tokenizer_of(questions.pairs.documents.folder)
    sources = ["\n".join(map(tokenizer.decode, own)) for own in tokens_of(questions)]
    taken = [source[len(source) // 2 :][:60] for source in sources]
    found = compute_copied(questions, [System("taken", taken, {}), System("other", sources[1:] + sources[:1], {})])
    for texts, shares in ((taken, found[0]), (sources[1:] + sources[:1], found[1])):
        expected = [compute_copied_shares([text], source)[0] for text, source in zip(texts, sources, strict=True)]
        assert np.array_equal(shares, expected, equal_nan=True)
    assert np.nanmean(found[0]) > np.nanmean(found[1]) + 0.3


@pytest.mark.parametrize("bins", [1, 2, 5, 100])
def test_bins_are_ordered_and_complete(bins):
    lengths = np.random.default_rng(0).integers(1, 40, 90)
    groups = length_bins(lengths, bins)
    assert sorted(np.concatenate(groups).tolist()) == list(range(90))
    assert len(groups) <= bins
    edges = [(lengths[rows].min(), lengths[rows].max()) for rows in groups]
    assert all(low > high for (_, high), (low, _) in pairwise(edges))
    if bins <= 5:
        assert len(groups) == bins
        assert max(map(len, groups)) - min(map(len, groups)) < 12


def test_sources_of_one_length_are_one_group():
    assert [rows.tolist() for rows in length_bins(np.full(6, 9), 4)] == [[0, 1, 2, 3, 4, 5]]


HITS = np.array([1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0] * 20) * 100


@pytest.mark.parametrize("gain", [0.0, 10.0])
def test_a_constant_gain_has_a_difference_without_width_although_each_has_an_interval(gain):
    metric = load_metric("exact_match")
    (key,) = metric.scores(["a"], [["a"]], None)
    (first, none), (second, difference) = measure(metric, [{key: HITS / 2}, {key: HITS / 2 + gain}], 200, 0)
    assert none == {}
    assert second[key] == pytest.approx({name: value + gain for name, value in first[key].items()})
    assert first[key]["low"] < first[key]["value"] < first[key]["high"]
    assert difference[key] == pytest.approx({"value": gain, "low": gain, "high": gain})


ODD = ["None", "", "NA", "nan", "null", " lead ", 'a "quoted", text', "two\nlines", "é\u2028\U0001f600", ",", '"', "\n"]


def by_script(answers: dict[str, dict[str, str]]) -> bytes:
    """The steps of ``evaluator/prepare_submission.py``."""
    columns = ["Task", "ID", "Prediction"]
    table = pd.DataFrame(columns=columns, data=[])
    for task, own in answers.items():
        part = pd.DataFrame.from_dict(own, orient="index", columns=columns[-1:]).reset_index(drop=False)
        part["Task"], part["ID"] = task, part["index"]
        table = pd.concat((table, part[columns]))
    out = io.StringIO(newline="")
    table.reset_index(drop=True).to_csv(out, index=False)
    return out.getvalue().encode()


def read_back(data: bytes) -> list[list[str]]:
    values = ["!@#$%^&*()"]
    table = pd.read_csv(io.BytesIO(data), dtype=object, keep_default_na=False, na_values=values)
    assert table.columns.tolist() == ["Task", "ID", "Prediction"]
    return table.values.tolist()


def rows_of(answers):
    return [[task, pair, text] for task, own in answers.items() for pair, text in own.items()]


def test_bytes_are_those_of_the_script():
    answers = {task: {f"{task}-{n}": text for n, text in enumerate(ODD)} for task in SUBSETS[:3]}
    assert csv_bytes(answers) == by_script(answers)
    assert read_back(csv_bytes(answers)) == rows_of(answers)


def test_carriage_returns_survive():
    """pandas itself would leave them bare, and read another table."""
    answers = {"qasper": {"1": "a\rb", "2": "\r\n"}}
    assert read_back(csv_bytes(answers)) == rows_of(answers)
    assert csv_bytes(answers) != by_script(answers)


@pytest.fixture(scope="module")
def systems(tmp_path_factory):
    """Predictions of two data sets about one split ``test``, then of pairs that do not name theirs."""
    root = tmp_path_factory.mktemp("submit")
    documents = make_documents(str(root / "d"))
    made = {}
    for name, attributes in (("two", [{"subset": "quality"}, {"subset": "qasper"}]), ("silent", [{}])):
        pairs = make_pairs(str(root / f"{name}-pairs"), documents, splits=["test"], attributes=attributes)
        made[name] = make_predictions(str(root / name), pairs, "test", [f"{name}, {n}" for n in range(24)])
    return made


@pytest.fixture
def files(tmp_path) -> dict[str, str]:
    """A JSON file of each further data set."""
    made = {}
    for task in SUBSETS:
        if task not in ("quality", "qasper", "qmsum"):
            (tmp_path / f"{task}.json").write_text(json.dumps({f"{task}\u00e9": text for text in ODD}))
            made[task] = str(tmp_path / f"{task}.json")
    return made


def test_subsets_come_from_pairs_and_by_name(systems, files, tmp_path):
    named = [f"{name}={place}" for name, place in {**files, "qmsum": systems["silent"]}.items()]
    path = farspan.submit([systems["two"], *named], tmp_path / "s.csv")
    rows = read_back(path.read_bytes())
    assert list(dict.fromkeys(row[0] for row in rows)) == list(SUBSETS)
    assert [row[1:] for row in rows if row[0] == "quality"][:2] == [["pair-0", "two, 0"], ["pair-2", "two, 2"]]
    assert sum(row[0] == "qmsum" for row in rows) == 24
    assert rows == rows_of(json.loads((tmp_path / "s.json").read_text()))


def test_missing_subsets(systems, tmp_path):
    with pytest.raises(FarspanError, match="5 of the 7 subsets of SCROLLS: qmsum, summ_screen_fd, narrative_qa, contr"):
        submit(systems["two"], tmp_path / "s.csv")
    assert not (tmp_path / "s.csv").exists()
    submit(systems["two"], tmp_path / "s.csv", partial=True)
    assert len(read_back((tmp_path / "s.csv").read_bytes())) == 24
    with pytest.raises(FarspanError, match="no predictions for 7 of the 7 subsets"):
        submit([], tmp_path / "s.csv", partial=True)


def test_what_cannot_be_submitted(systems, files, made, tmp_path):
    for given, message in (
        (systems["silent"], "do not name their subset; give SUBSET="),
        ([systems["two"], f"qasper={systems['silent']}"], "qasper has predictions in .* already; leave one out"),
        (f"qaspr={systems['two']}", r"SCROLLS has no subset 'qaspr' \(did you mean 'qasper'\?\)"),
        (made.good, "predictions of split validation, and the SCROLLS server scores test"),
        (next(iter(files.values())), "a JSON file does not name the subset of its predictions; give SUBSET="),
    ):
        with pytest.raises(FarspanError, match=message):
            submit(given, tmp_path / "s.csv")
    with pytest.raises(FarspanError, match=r"give a name that ends in \.csv"):
        submit(systems["two"], tmp_path / "s.txt")


def test_predictions_of_pairs_that_were_moved(tmp_path):
    pairs = make_pairs(str(tmp_path / "p"), make_documents(str(tmp_path / "d")), splits=["test"])
    system = make_predictions(str(tmp_path / "g"), pairs, "test")
    out = tmp_path / "s.csv"
    before = submit(f"qasper={system}", out, partial=True).read_bytes()
    os.rename(pairs, tmp_path / "p2")
    with pytest.raises(FarspanError, match=f"its pairs, which name their subset, were moved; give SUBSET={system}"):
        submit(system, out, partial=True)
    assert submit(f"qasper={system}", out, partial=True).read_bytes() == before


def test_the_command(systems, tmp_path, run):
    out = str(tmp_path / "s.csv")
    status, printed, _ = run("submit", systems["two"], f"qmsum={systems['silent']}", "--partial", "--output", out)
    counts = "predictions: qmsum 24, qasper 12, quality 12"
    assert (status, printed) == (0, f"{out}: {counts}; the same as JSON in {out[:-3]}json\n")
    for given, message in (("qmsun=x", "qmsun=x: SCROLLS has no subset 'qmsun' (did you mean"), ("qmsum=x", "x: ")):
        status, _, errors = run("submit", given, "--output", out)
        assert (status, message in errors) == (1, True)


def test_a_name_with_an_equals_sign_is_a_path_if_it_exists(systems, tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.symlink(systems["two"], "lr=3")
    assert run("submit", "lr=3", "--partial", "--output", "s.csv")[0] == 0
