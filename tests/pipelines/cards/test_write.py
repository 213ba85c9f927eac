"""The card of an artefact on disk: its ancestors, its example, and what goes missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from corpora.storage.manifest_file import CARD, list_files, manifest_sha256, read_manifest
from corpora.verify.artefact import verify
from pipelines.cards.write import find_ancestors, find_example, write_card
from pipelines.cli import main
from tests.artefacts import make_corpus, make_documents


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Documents under a licence, a random corpus of these and its masks, by the commands."""
    folder = tmp_path_factory.mktemp("artefacts")
    (folder / "text.txt").write_text("The lantern is red. The river is quiet, and nobody sees it.\n" * 20)
    terms = "--license cc0-1.0 --language en"
    for command in (
        "tokenizer train --vocab-size 300 --input {0}/text.txt --output {0}/tokenizer",
        "documents --input {0}/text.txt --format lines --tokenizer {0}/tokenizer --output {0}/documents " + terms,
        "corpus random --documents {0}/documents --sequence-length 64 --output {0}/corpus",
        "mask span --preset t5 --corpus {0}/corpus --output {0}/masks",
    ):
        main(command.format(folder).split())
    return folder


def test_licence_and_ancestry_reach_every_child(folder: Path):
    text = (folder / "masks" / CARD).read_text("utf-8")
    assert 'license: "cc0-1.0"' in text
    assert '- "en"' in text
    for name in ("documents", "corpus", "masks"):
        assert f"`{manifest_sha256(str(folder / name))}`" in text
    commands = text.split("```bash\n")[1].split("\n```")[0].splitlines()
    assert [line.split(" --")[0] for line in commands] == [
        "farspan documents",
        "farspan corpus random",
        "farspan mask span",
    ]
    assert "⟦" in text
    assert str(folder) not in text


def test_the_card_is_derived_and_no_part_of_the_artefact(folder: Path, tmp_path):
    copy = str(shutil.copytree(folder / "documents", tmp_path / "copy"))
    (tmp_path / "copy" / CARD).write_text("edited")
    assert verify(copy) == []
    assert CARD not in list_files(copy)
    (tmp_path / "copy" / CARD).unlink()
    assert verify(copy) == []
    write_card(copy, read_manifest(copy))
    assert (tmp_path / "copy" / CARD).read_bytes() == (folder / "documents" / CARD).read_bytes()


def test_an_ancestor_out_of_reach_keeps_its_checksum(folder: Path, tmp_path):
    manifest = read_manifest(str(folder / "masks"))
    assert [one and one.format for _, one in find_ancestors(str(folder / "masks"), manifest)] == [
        "farspan.corpus",
        "farspan.documents",
    ]
    alone = str(shutil.copytree(folder / "masks", tmp_path / "masks"))
    assert list(find_ancestors(alone, manifest)) == [(manifest_sha256(str(folder / "corpus")), None)]
    example = find_example(alone, manifest)
    assert example is None or "⟦" not in example


def test_a_parent_that_was_made_again_is_no_ancestor(folder: Path, tmp_path):
    for name in ("corpus", "masks"):
        shutil.copytree(folder / name, tmp_path / name)
    make_corpus(str(tmp_path / "other"))
    shutil.copy(tmp_path / "other" / "manifest.json", tmp_path / "corpus" / "manifest.json")
    ((_, found),) = find_ancestors(str(tmp_path / "masks"), read_manifest(str(tmp_path / "masks")))
    assert found is None


def test_empty_and_damaged_artefacts_have_a_card_without_example(tmp_path):
    made = make_documents(str(tmp_path / "made"))
    for shard in (tmp_path / "made" / "shards").iterdir():
        shard.write_bytes(b"damaged")
    assert find_example(made, read_manifest(made)) is None
    write_card(made, read_manifest(made))
    assert "## Numbers" in (tmp_path / "made" / CARD).read_text("utf-8")


@pytest.mark.parametrize("flag", ["--license=a b", "--language=<en>", "--license="])
def test_terms_that_are_no_names_are_refused(flag: str, run, tmp_path):
    status, _, errors = run("documents", "--input", "x", "--tokenizer", "y", "--output", tmp_path / "o", flag)
    assert status == 1
    assert "give a name of letters" in errors
