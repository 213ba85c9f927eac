"""`farspan view` as a command, and the artefacts that it opens together."""

import builtins
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

pytest.importorskip("starlette", reason="farspan[view] is not installed")

from corpora.errors import FarspanError
from corpora.storage import sharded_rows
from corpora.storage.manifest_file import ORIGINS_NAME
from pipelines import functions
from pipelines.pages.options import View
from pipelines.pages.page import PageOptions, RowPage
from pipelines.view.command import command, open_artefacts
from pipelines.view.workspace import Workspace
from tests.artefacts import make_corpus, make_documents, make_pairs
from tests.object_store import upload


def test_rows_are_saved_into_one_file(made, tmp_path, run):
    page = str(tmp_path / "page.html")
    status, out, errors = run("view", made["spans"], "--masks", made["sentences"], "--save", page, "--count", 3)
    assert (status, errors) == (0, "")
    assert out == f"{page}: 3 rows of {made['corpus']}\n"
    text = (tmp_path / "page.html").read_text()
    assert re.findall(r'<section class="saved" id="row-(\d+)"', text) == ["0", "1", "2"]
    assert text.count('<article class="column">') == 6
    command(View(artefact=(made["documents"],), save=page, rows="7,2"))
    assert re.findall(r'class="saved" id="row-(\d+)"', (tmp_path / "page.html").read_text()) == ["2", "7"]


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (["corpus"], {"save": "page.pdf"}, "--save page.pdf: is written as HTML"),
        (["corpus"], {"save": "page.html", "rows": "1,999"}, "--rows 1,999: .* has rows 0 to"),
        (["corpus"], {"rows": "99999"}, "--rows 99999: .* has rows 0 to"),  # before anything is served
        (["corpus"], {"save": "page.html", "row": 3, "count": 999}, "--row 3 --count 999: .* has rows 0 to"),
        (["corpus"], {"row": 99999}, "--row 99999: .* has rows 0 to"),
        (["corpus", "documents"], {"save": "page.html"}, "holds rows of one artefact"),
        (["corpus"], {"masks": ["documents"]}, r"--masks .*documents: is 'farspan\.documents', not a mask set"),
        (["documents"], {"objective": ("t5",)}, "--objective t5: there is no corpus among the artefacts"),
        (["documents"], {"layout": "stream"}, "--layout stream: there is no corpus among the artefacts"),
        (["corpus"], {"task": "bart_ls"}, "--task bart_ls: there is no pairs among the artefacts"),
        (["corpus"], {"corpus": "x"}, "--corpus x: there is no mask set among the artefacts"),
        (["corpus"], {"neighbours": "x"}, "--neighbours x: .* was not linked"),
    ],
)
def test_what_cannot_be_shown_is_refused(made, names, options, message):
    masks = tuple(made[name] for name in options.get("masks", ()))
    with pytest.raises(FarspanError, match=message):
        command(View(artefact=tuple(made[name] for name in names), **{**options, "masks": masks}))


def test_a_missing_extra_is_one_line(made, monkeypatch):
    original = builtins.__import__

    def without_jinja(name, *arguments, **named):
        if name == "jinja2":
            raise ModuleNotFoundError("no jinja2", name="jinja2")
        return original(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without_jinja)
    with pytest.raises(FarspanError, match=r"viewing artefacts needs jinja2: pip install 'farspan\[view\]'"):
        command(View(artefact=(made["corpus"],)))


def test_a_used_port_is_refused(made):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(FarspanError, match=f"--port {port}: .*; give another, or 0 for a free one"):
            command(View(artefact=(made["corpus"],), port=port))


def test_asyncio_sends_small_packets_at_once(made, monkeypatch):
    """It does so for sockets whose protocol is TCP by name."""
    import uvicorn

    protocols = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda _, sockets: protocols.extend(each.proto for each in sockets))
    command(View(artefact=(made["documents"],)))
    assert protocols == [socket.IPPROTO_TCP]


def test_pages_are_served_on_this_machine_alone(made):
    server = subprocess.Popen(
        [sys.executable, "-m", "pipelines", "view", made["documents"], "--rows", "3,5"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{22}/\?rows=3,5", address)
        with urllib.request.urlopen(address, timeout=60) as answer:
            assert answer.url.endswith("documents/3?rows=3%2C5")
            assert b"document 3 of 120" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(re.sub(r"/[\w-]{22}/.*", "/", address), timeout=60)
        server.send_signal(signal.SIGINT)  # Ctrl-C ends it, and stopped no work
        _, errors = server.communicate(timeout=60)
        told = errors.removeprefix("view: loads libraries\n")  # on a busy machine
        assert (server.returncode, told) == (0, "")
    finally:
        server.kill()
        server.wait(30)


def open_named(made, *names, **options):
    masks = tuple(made[name] for name in options.pop("masks", ()))
    return open_artefacts(View(artefact=tuple(made[name] for name in names), masks=masks, **options))


def test_masks_are_laid_beside_their_corpus(made):
    for subjects in (
        open_named(made, "corpus", "spans", "sentences"),
        open_named(made, "corpus", masks=("spans", "sentences")),
        open_named(made, "spans", "sentences"),
    ):
        (subject,) = subjects
        assert (subject.name, subject.kind, list(subject.mask_sets)) == ("corpus", "corpus", ["spans", "sentences"])
    (subject,) = open_named(made, "corpus", objective=("t5",))
    assert list(subject.mask_sets) == ["t5"]


def test_every_kind_is_opened(made):
    subjects = open_named(made, "documents", "pairs", "first", "second", "corpus")
    assert [(subject.name, subject.kind) for subject in subjects] == [
        ("corpus", "corpus"),
        ("documents", "documents"),
        ("pairs", "pairs"),
        ("first", "predictions"),
    ]


def test_equal_names_of_opened_artefacts_are_told_apart(made, tmp_path):
    again = shutil.copytree(made["documents"], tmp_path / "documents")
    subjects = open_artefacts(View(artefact=(made["documents"], f"{again}/", made["corpus"])))
    assert [subject.name for subject in subjects] == ["corpus", "documents", "documents-2"]
    assert Workspace.of(subjects).subject("documents-2").folder == f"{again}/"


def test_masks_of_another_corpus_are_refused(made, tmp_path):
    alone = str(tmp_path / "alone")
    shutil.copytree(made["spans"], alone, ignore=shutil.ignore_patterns(ORIGINS_NAME))
    assert open_artefacts(View(artefact=(alone,), corpus=made["corpus"]))[0].mask_sets == ("alone",)
    other = make_corpus(str(tmp_path / "corpus"), seed=1)
    with pytest.raises(FarspanError, match="its masks are not those of the corpus"):
        open_artefacts(View(artefact=(alone,), corpus=other))


def content(page: RowPage) -> str:
    return repr([page, *(block.pieces for band in page.bands for column in band for block in column.blocks)])


def test_rows_on_s3_are_those_of_the_local_artefacts(made, store, monkeypatch):
    """Pages read record batches in place: no shard is fetched whole."""
    bucket = store.make_bucket("viewed")
    for name in ("corpus", "spans", "documents", "pairs"):
        upload(made[name], f"{bucket}/{name}")
    remote = {name: f"{bucket}/{name}" for name in ("corpus", "spans", "documents", "pairs")}
    local = open_named(made, "corpus", "documents", "pairs", masks=("spans",))
    expected = {
        (here.name, row): content(here.page(row, PageOptions())) for here in local for row in (0, len(here) - 1)
    }
    monkeypatch.setattr(sharded_rows, "map_shard", None)
    artefacts = (remote["corpus"], remote["documents"], remote["pairs"])
    far = open_artefacts(View(artefact=artefacts, masks=(remote["spans"],), documents=remote["documents"]))
    assert [subject.name for subject in far] == [subject.name for subject in local] == ["corpus", "documents", "pairs"]
    for here, there in zip(local, far, strict=True):
        assert len(here) == len(there)
        for row in (0, len(here) - 1):
            assert content(there.page(row, PageOptions())) == expected[here.name, row]


def test_titles_reach_the_documents_corpora_and_pairs(tmp_path):
    titles = ("<script>One", None, "Three")
    documents = make_documents(str(tmp_path / "documents"), shards=1, documents=20, titles=titles)
    corpus = str(tmp_path / "corpus")
    functions.corpus_random(documents=documents, sequence_length=128, output=corpus, workers=1, quiet=True)
    pairs = make_pairs(str(tmp_path / "pairs"), documents, pairs=3)
    of_corpus, of_documents, of_pairs = open_artefacts(View(artefact=(corpus, documents, pairs), objective=("t5",)))
    for row in range(3):
        for subject in (of_documents, of_pairs):
            block = subject.page(row, PageOptions()).bands[-1][-1].blocks[0]
            assert (block.heading, block.title) == (f"made:0:{row}", titles[row] or "")
    page = of_corpus.page(0, PageOptions())
    shown = {block.heading: block.title for block in page.bands[0][0].blocks}
    assert shown == {name: titles[int(name.rpartition(":")[2]) % 3] or "" for name in shown}
    assert {part.title for part in page.parts} == set(titles)
    moved = shutil.move(documents, str(tmp_path / "moved"))
    (unknown,) = open_artefacts(View(artefact=(corpus,)))
    assert {block.title for block in unknown.page(0, PageOptions()).bands[0][0].blocks} == {""}
    (known,) = open_artefacts(View(artefact=(corpus,), documents=moved))
    assert {part.title for part in known.page(0, PageOptions()).parts} == set(titles)


def test_streams_are_saved(made, tmp_path, run):
    page = str(tmp_path / "page.html")
    for folder in ("corpus", "spans"):
        assert run("view", made[folder], "--layout", "stream", "--save", page, "--count", 2)[0] == 0
        text = (tmp_path / "page.html").read_text()
        assert text.count('<span class="name">stream</span>') == 2
        assert '<span class="attended">' in text
        assert '<span class="name">target</span>' not in text
