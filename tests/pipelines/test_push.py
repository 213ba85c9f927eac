"""Publishing on the hub and reading from it, against a stand-in of its endpoints on this machine (``tests/hub.py``)."""

import gzip
import json
import shutil

import pytest

from corpora.errors import FarspanError
from corpora.readers import ReadOptions
from corpora.readers.load_dataset import find_split
from corpora.schemas.documents import DocumentSet
from corpora.storage import files
from pipelines.documents.inputs import Input, revisions_of
from pipelines.options import Push
from pipelines.push import Pushed, Target, command, push
from tests.artefacts import small_tokenizer
from tests.corpora.readers import read_all
from tests.hub import Hub
from tests.pipelines.documents.jobs import build

PLACE = "datasets/me/books"


@pytest.fixture
def hub(monkeypatch):
    hub = Hub()
    hub.connect(monkeypatch)
    yield hub
    hub.close()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("artefact")
    small_tokenizer().save(str(folder / "tokenizer"))
    (folder / "raw.jsonl").write_text("".join(f'{{"text": "Book number {n}."}}\n' for n in range(30)))
    build(str(folder / "raw.jsonl"), folder / "docs", str(folder / "tokenizer"), task_bytes=200)
    return folder / "docs"


@pytest.fixture
def documents(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "docs")
    return tmp_path / "docs"


def contents(folder):
    """What a push publishes of a folder: everything except hidden files and those of unfinished jobs."""
    names = [path.removeprefix(f"{folder}/") for path in files.walk(str(folder))]
    return {n: (folder / n).read_bytes() for n in names if not n.startswith((".", "_work"))}


def test_an_artefact_is_published_and_its_manifest_comes_last(hub, documents):
    (documents / "README.md").write_text("---\nlicense: unknown\n---\n# Books\n")
    lines = []
    pushed = push(documents, f"hf://{PLACE}", report=lines.append)
    assert hub.repos[PLACE] == contents(documents)
    assert [name for _, name in hub.commits[-1]] == ["README.md", "manifest.json"]
    assert len(lines) == len(hub.commits) == 2
    assert pushed.sent == len(hub.repos[PLACE])
    assert push(documents, f"hf://{PLACE}") == Pushed(0, 0, pushed.sent)
    assert len(hub.commits) == 2


def test_a_stopped_push_sends_the_rest_only(hub, documents, monkeypatch):
    names = set(contents(documents))
    last = names & {"README.md", "manifest.json"}
    hub.failing[("POST", f"/api/{PLACE}/commit/main")] = 403
    with pytest.raises(FarspanError, match="HF_TOKEN"):
        push(documents, f"hf://{PLACE}")
    assert hub.repos[PLACE] == {}
    sent = len(hub.objects)  # they arrived, though no commit names them
    assert sent
    real, left = hub._commit, [1]

    def once(repo, lines):
        return real(repo, lines) if left and left.pop() else (400, {"error": "the line is cut"})

    monkeypatch.setattr(hub, "_commit", once)
    with pytest.raises(FarspanError, match="run the command again to resume"):
        push(documents, f"hf://{PLACE}")
    assert set(hub.repos[PLACE]) == names - last
    assert len(hub.objects) == sent  # none of them was sent again
    monkeypatch.setattr(hub, "_commit", real)
    hub.requests.clear()
    pushed = push(documents, f"hf://{PLACE}")
    assert (pushed.sent, pushed.present) == (len(last), len(names - last))
    assert hub.repos[PLACE] == contents(documents)


def test_another_artefact_in_the_same_place_replaces_it(hub, documents, monkeypatch):
    push(documents, f"hf://{PLACE}@main/docs")
    hub.repos[PLACE]["docs/shards/part-00099-of-00100.arrow"] = b"of an earlier artefact"
    hub.repos[PLACE]["other/notes.txt"] = b"of somebody else"
    manifest = hub.repos[PLACE]["docs/manifest.json"]
    del hub.repos[PLACE][next(name for name in hub.repos[PLACE] if "part-00000" in name)]
    hub.commits.clear()
    push(documents, f"hf://{PLACE}/docs", message="Repair")
    assert hub.commits[0][0] == ("deletedFile", "docs/manifest.json")  # unfinished until the end
    assert ("file", "docs/manifest.json") in hub.commits[-1]
    assert hub.repos[PLACE]["docs/manifest.json"] == manifest
    assert hub.repos[PLACE]["other/notes.txt"]
    assert sorted(hub.repos[PLACE]) == sorted(["other/notes.txt", *(f"docs/{name}" for name in contents(documents))])


def test_what_is_unfinished_damaged_or_no_place_is_refused(hub, documents, tmp_path):
    with pytest.raises(FarspanError, match="manifest"):
        push(tmp_path / "nothing", f"hf://{PLACE}")
    for text in ("hf://books", "s3://bucket/x", "hf://datasets/books"):
        with pytest.raises(FarspanError, match="give hf://datasets/OWNER/NAME"):
            Target.parse(text)
    with pytest.raises(FarspanError, match=r"no config\.json"):
        push(documents, "hf://me/model")
    shard = next((documents / "shards").iterdir())
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(FarspanError, match=r"not as the manifest says; `farspan verify"):
        push(documents, f"hf://{PLACE}")
    assert hub.repos == {}


def test_a_hub_that_cannot_be_reached_is_one_line_with_a_cure(hub, documents):
    hub.close()
    with pytest.raises(FarspanError, match=r"hub cannot be reached \(.*\); run the command again to resume$"):
        push(documents, f"hf://{PLACE}")
    with pytest.raises(FarspanError, match=r"the hub cannot be reached; run the command again, or download"):
        find_split("hf:me/books")


def test_a_model_is_published_as_one(tmp_path, hub, capsys):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "model" / ".cache").write_text("")
    command(Push(artefact=f"{tmp_path}/model", target="hf://me/tiny"))
    assert hub.repos["models/me/tiny"] == {"config.json": b"{}"}
    assert "hf://me/tiny: 1 file sent (2 bytes), 0 files already there" in capsys.readouterr().out


def test_a_published_artefact_opens_from_the_hub(hub, finished, tmp_path):
    import datasets

    push(finished, f"hf://{PLACE}")
    here, there = (DocumentSet(str(place)) for place in (finished, f"hf://{PLACE}"))
    rows = range(len(here))
    assert there.take(rows).equals(here.take(rows))
    opened = datasets.load_dataset("me/books", split="train", streaming=True, cache_dir=str(tmp_path))
    assert [row["document_id"] for row in opened] == here.take(rows).column("document_id").to_pylist()


def test_files_and_data_sets_of_the_hub_are_read(hub, tmp_path):
    texts = [f"Line {number}." for number in range(6)]
    rows = [json.dumps({"text": text}) + "\n" for text in texts]
    packed = gzip.compress("".join(rows[:4]).encode(), mtime=0)
    hub.repos[PLACE] = {"en/train-0.jsonl.gz": packed, "en/train-1.jsonl": "".join(rows[4:]).encode()}
    item = Input.parse(f"c4=hf://{PLACE}/en/*")
    assert [item.relative(path) for path in item.paths] == ["train-0.jsonl.gz", "train-1.jsonl"]
    assert [text for path in item.paths for text in read_all(path).texts] == texts
    split = find_split("hf:me/books")
    assert (split.name, split.revision, split.config, split.split) == (
        "me/books",
        hub.sha(hub.repos[PLACE]),
        "default",
        "train",
    )
    assert revisions_of((Input("c4", split.root, (split.path,), ReadOptions()),)) == {"me/books": split.revision}
    assert read_all(split.path).texts == texts
    with pytest.raises(FarspanError, match="no such data set"):
        find_split("hf:me/nothing")
