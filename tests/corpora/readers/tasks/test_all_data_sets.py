"""Data sets of tasks: index files, places of records, and records with odd values."""

import gzip
import io
import json
from copy import deepcopy
from importlib import import_module
from pkgutil import iter_modules

import pytest

from corpora.errors import FarspanError
from corpora.readers import ReadOptions, tasks
from corpora.readers.blocks import BlockBuilder
from corpora.readers.formats import FORMATS
from corpora.readers.raw_tasks import Place, RawDocument, RawPair, RawRecord, RawTask
from corpora.readers.records import BadRecord, Range
from corpora.readers.selection import plan_ranges
from corpora.readers.task_files import ENTRIES_A_RANGE, index_files, whole_files
from corpora.readers.tasks import DATA_SETS, MODULES, clusters, questions, stories, suites, summaries
from corpora.storage import files
from tests.corpora.readers.tasks import test_collections, test_questions, test_stories, test_summaries


def read(reader, path, target=1 << 30):
    """Name -> text of all documents, and the number of ranges."""
    found, pieces = {}, reader.plan(str(path), target)
    for cut in pieces:
        builder = BlockBuilder(str(path), reader.resolve(ReadOptions()))
        piece = Range(*(str(path), "", *cut, path.stat().st_size))
        positions = list(reader.read(piece, builder))
        assert positions[-1] <= piece.bytes
        block = builder.take(0)
        found |= dict(zip(block.ids, block.texts, strict=True))
        assert not block.rejects
    return found, len(pieces)


# Index files, whose entries name others.
def entries(data, place):
    return [(name, name.upper()) for name in data.decode().split()]


def parse_entry(entry, place):
    return RawTask([RawDocument(place.key, entry)], [])


INDEX = index_files(entries, parse_entry, r".*\.ids")


@pytest.mark.parametrize("count", [0, 1, ENTRIES_A_RANGE, ENTRIES_A_RANGE + 1, 3 * ENTRIES_A_RANGE])
@pytest.mark.parametrize("whole", [False, True])
def test_every_entry_is_read_once_in_order(tmp_path, count, whole):
    index = whole_files(entries, parse_entry) if whole else INDEX
    path = tmp_path / "a.ids"
    path.write_text("".join(f"n{number}\n" for number in range(count)))
    assert sum(cut.bytes for cut in index.plan(str(path), 1)) == path.stat().st_size
    found, ranges = read(index, path, 1)
    assert found == {f"n{number}": f"N{number}" for number in range(count)}
    assert ranges == (1 if whole else max(1, -(-count // ENTRIES_A_RANGE)))


def test_a_compressed_index_is_unpacked(tmp_path):
    path = tmp_path / "a.ids.gz"
    path.write_bytes(gzip.compress(b"a b"))
    assert read(INDEX, path)[0] == {"a": "A", "b": "B"}
    path.write_bytes(path.read_bytes()[:-9])
    assert len(INDEX.plan(str(path), 1)) == 1


# Places of records: names, splits, and other files of the data set on disks and stores.
@pytest.mark.parametrize("root", ["/data/trivia", "data", "s3://bucket/trivia", "s3://bucket"])
def test_other_files_are_named_from_the_folder_of_the_record(monkeypatch, root):
    """By names without ``..``, which stores do not know."""
    known = (f"{root}/evidence/Fox.txt", f"{root}/qa/qaps.csv")

    def open_known(path):
        if path not in known:
            raise FileNotFoundError(2, "No such file", path)
        return io.BytesIO(path.encode())

    monkeypatch.setattr(files, "open", open_known)
    place = Place(f"{root}/qa/dev.json", "", "0", ReadOptions())
    assert place.read_beside("../evidence/Fox.txt") == known[0].encode()
    assert place.read_beside("qaps.csv") == known[1].encode()
    with pytest.raises(BadRecord, match=r"evidence/Dog\.txt: No such file"):
        place.read_beside("../evidence/Dog.txt")


@pytest.mark.parametrize(
    ("path", "member", "split"),
    [
        ("a/train.jsonl", "", "train"),
        ("a/QuALITY.v1.0.1.htmlstripped.dev", "", "validation"),
        ("a/test/0000.parquet", "", "test"),
        ("a/wikipedia-test-without-answers.json", "", "test"),
        ("a/quality.zip", "quality/val.jsonl", "validation"),
        ("a/crs_valid.ids", "", "validation"),
        ("a/train_test.jsonl", "", None),
        ("a/training/x.jsonl", "", "train"),
        ("training-data/x.jsonl", "", None),
        ("latest/mine/x.jsonl", "", None),
    ],
)
def test_the_split_is_told_by_the_file_or_its_folders(path, member, split):
    assert Place(path, member, "0", ReadOptions()).split == split


# Data sets of tasks as readers: what holds for all of them.
def test_the_table_of_names_lists_every_reader():
    modules = (module.name for module in iter_modules(tasks.__path__))
    readers = {module: set(import_module(f"{tasks.__name__}.{module}").READERS) for module in modules}
    assert {name: module for module, names in readers.items() for name in names} == MODULES


@pytest.mark.parametrize("name", sorted(set(DATA_SETS) - set(FORMATS)))
@pytest.mark.parametrize("suffix", [".pt", ".pkl"])
def test_a_pickle_is_refused_with_the_cure(tmp_path, name, suffix):
    path = tmp_path / f"train{suffix}"
    path.write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(FarspanError, match=rf"train\{suffix}: a pickle, .* never loaded; save it again as JSON lines"):
        plan_ranges(str(path), ReadOptions(format=name), 1 << 20)


# Records with one odd value: whatever it is and wherever it stands, the record is read or rejected.
ODD = (None, True, 7, -1.5, "", "\x00", "../x", "word", [], [[]], [None], [7], ["a", "b", "c"], {}, {"a": None})

CASES = {
    "booksum": (test_summaries.row("shmoop", 1, 1), lambda record, place: chapter(record, place)),
    "contract_nli": (
        {"documents": [test_questions.contract(1)], "labels": test_questions.LABELS},
        lambda record, place: contract(record, place),
    ),
    "gao": (test_summaries.GAO, lambda record, place: report(record, place, "gao")),
    "crs": (test_summaries.CRS, lambda record, place: report(record, place, "crs")),
    "gov_report": ({"id": "1", "report": "A.", "summary": "B."}, summaries.parse_report),
    "hotpot_qa": (test_questions.QUESTION, questions.parse_hotpot_qa),
    "long_bench": (test_collections.LONG, suites.parse_long_bench),
    "mediasum": (test_summaries.INTERVIEW, clusters.parse_interview),
    "multi_xscience": (test_summaries.PAPER, clusters.parse_related_work),
    "qasper": (test_questions.PAPER, questions.parse_qasper),
    "qmsum": (test_collections.MEETING, summaries.parse_meeting),
    "quality": (test_questions.line("W", test_questions.choice(1)), questions.parse_quality),
    "summ_screen": (test_summaries.line("A"), summaries.parse_episode),
    "summ_screen_raw": (test_summaries.line("A"), summaries.parse_raw_episode),
    "trivia_qa": (test_stories.question("q", test_stories.page("Fox")), questions.parse_trivia_qa),
    "wiki_hop": (test_questions.QUERY, questions.parse_wiki_hop),
}


def contract(record, place):
    contracts = questions.contracts(json.dumps(record).encode(), place)
    return questions.parse_contract(contracts[0][1], place) if contracts else RawTask([], [])


def chapter(record, place):
    ((_, rows),) = stories.chapters(json.dumps(record).encode(), place)
    return stories.parse_chapter(rows, place)


def report(record, place, agency):
    folder = place.path.rpartition("/qa/")[0]
    with open(f"{folder}/{agency}/R.json", "w") as file:
        json.dump(record, file)
    return summaries.parse_report_id(f"{agency}/R", place)


def places(value, path=()):
    """The path to every value inside a record."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def changed(record, path):
    """The record without the value at a path, and with each of the odd values there."""
    for odd in ("gone", *ODD):
        copy = deepcopy(record)
        inside = copy
        for key in path[:-1]:
            inside = inside[key]
        if odd == "gone":
            del inside[path[-1]]
        else:
            inside[path[-1]] = odd
        yield copy


@pytest.fixture
def place(tmp_path):
    for folder in ("qa", "gao", "crs", "evidence/wikipedia", "all_chapterized_books/7-chapters", "SummScreen_raw/fd"):
        (tmp_path / folder).mkdir(parents=True)
    summaries = tmp_path / "finished_summaries" / "shmoop" / "A Tale"
    summaries.mkdir(parents=True)
    (summaries / "section_1_part_1.txt").write_text('{"summary": "Short."}')
    (tmp_path / "all_chapterized_books" / "7-chapters" / "1.txt").write_text("Long.")
    (tmp_path / "evidence" / "wikipedia" / "Fox.txt").write_text("A fox.")
    (tmp_path / "SummScreen_raw" / "fd" / "A.json").write_text(json.dumps(test_summaries.EPISODE))
    return Place(str(tmp_path / "qa" / "fd_train.json"), "", "key", ReadOptions())


@pytest.mark.parametrize("name", CASES)
def test_a_record_with_an_odd_value_is_read_or_rejected(name, place):
    record, parse = CASES[name]
    assert parse(RawRecord(deepcopy(record)), place).pairs
    read = 0
    for path in list(places(record)):
        for copy in changed(record, path):
            try:
                task = parse(RawRecord(copy), place)
            except BadRecord:
                continue
            read += 1
            assert all(isinstance(text, str) for document in task.documents for text in document)
            for pair in task.pairs:
                check(pair)
    assert read


def check(pair: RawPair) -> None:
    """All values have their types, and survive JSON."""
    assert isinstance(pair.pair_id, str)
    assert pair.pair_id
    texts = (*pair.documents, pair.query, *pair.targets, *(pair.references or ()), *(pair.options or ()))
    assert all(isinstance(text, str) for text in texts)
    assert RawPair.from_json(pair.to_json()) == pair
