"""The command in this process, and small artefacts to look at, made once."""

import sys

import pytest

from corpora.schemas.corpus import Corpus
from objectives.api.mask_set import MaskSet
from pipelines.cli import main
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.masks.job import plan
from pipelines.masks.options import Masking
from pipelines.pages.corpus_rows import CorpusRows, Masker
from tests.artefacts import make_corpus, make_documents, make_pairs, make_predictions, small_tokenizer


@pytest.fixture
def run(capsys, monkeypatch):
    """Run a command in this process: (status, output, errors)."""
    monkeypatch.setattr("pipelines.cli.leave", sys.exit)

    def call(*arguments):
        status = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as ended:
            status = int(ended.code or 0)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    """The folder of a small tokenizer."""
    folder = str(tmp_path_factory.mktemp("tokenizer"))
    small_tokenizer().save(folder)
    return folder


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Folder name -> folder: a corpus, two mask sets of it, documents, pairs, and two systems' predictions."""
    root = tmp_path_factory.mktemp("made")
    corpus = make_corpus(str(root / "corpus"), words=300)
    folders = {"corpus": corpus}
    for name, objective, preset, draws in (("spans", "span", "t5", 2), ("sentences", "principal_sentences", None, 1)):
        folders[name] = str(root / name)
        options = {"target_length": 64} if objective != "span" else {}
        masking = Masking(
            corpus=corpus, output=folders[name], objective=objective, preset=preset, options=options, draws=draws
        )
        run_job(plan(masking), Engine(workers=1))
    folders["documents"] = make_documents(str(root / "documents"), sources=("made", "other"), clusters=3)
    folders["pairs"] = make_pairs(
        str(root / "pairs"), folders["documents"], documents_per_pair=2, options=2, attributes=({"subset": "tales"},)
    )
    folders["first"] = make_predictions(str(root / "first"), folders["pairs"])
    texts = [f"the fox <script>alert({number})</script>" for number in range(8)]
    folders["second"] = make_predictions(str(root / "second"), folders["pairs"], texts=texts)
    return folders


@pytest.fixture(scope="session")
def rows(made):
    """The corpus with both mask sets."""
    maskers = [Masker.from_mask_set(name, MaskSet(made[name])) for name in ("spans", "sentences")]
    return CorpusRows("corpus", Corpus(made["corpus"]), maskers)
