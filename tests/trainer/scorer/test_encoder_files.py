"""Finding an encoder: a folder or a name on the hub, its files and its fingerprint."""

from __future__ import annotations

import shutil

import pytest

from corpora.errors import FarspanError
from tests.tiny_encoder import make_encoder
from trainer.scorer.encoder import find_encoder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_encoder(str(tmp_path_factory.mktemp("encoder") / "tiny"))


def test_what_is_no_encoder_is_refused(tiny, tmp_path):
    with pytest.raises(FarspanError, match="no such folder; give the folder of a BERT-like encoder"):
        find_encoder(str(tmp_path / "nothing"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(FarspanError, match=r"has no config.json and no tokenizer and no weights"):
        find_encoder(str(tmp_path / "empty"))
    lame = shutil.copytree(tiny, tmp_path / "lame")
    (lame / "model.safetensors").rename(lame / "model.bak")
    with pytest.raises(FarspanError, match="has no weights"):
        find_encoder(str(lame))
    with pytest.raises(FarspanError, match="does not describe a known encoder"):
        other = shutil.copytree(tiny, tmp_path / "other")
        (other / "config.json").write_text('{"model_type": "perceptron"}')
        find_encoder(str(other))
    with pytest.raises(FarspanError, match="a model with a decoder"):
        both = shutil.copytree(tiny, tmp_path / "both")
        (both / "config.json").write_text('{"model_type": "bart"}')
        find_encoder(str(both))


def test_a_hub_that_cannot_be_reached(monkeypatch):
    import huggingface_hub

    def refuse(name, **options):
        raise huggingface_hub.errors.LocalEntryNotFoundError("no route to the hub")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(
        FarspanError, match=r"'facebook/contriever' is not a local folder.*no route.*hf download facebook/contri"
    ):
        find_encoder("facebook/contriever")


def test_the_fingerprint_follows_the_files(tiny, tmp_path):
    copy = shutil.copytree(tiny, tmp_path / "copy")
    (copy / "README.md").write_text("words about it")
    assert find_encoder(str(copy)).fingerprint == find_encoder(tiny).fingerprint
    make_encoder(str(copy), seed=1)
    assert find_encoder(str(copy)).fingerprint != find_encoder(tiny).fingerprint
