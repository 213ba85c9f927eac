"""Folders that the real ``datasets`` library saves."""

from __future__ import annotations

import os

import datasets
import pytest

from corpora.errors import FarspanError
from corpora.readers import ReadOptions
from corpora.readers.huggingface import data_files
from corpora.storage import files
from tests.corpora.readers import read_all


@pytest.fixture
def saved(tmp_path):
    train = datasets.Dataset.from_dict(
        {"text": [f"train {i}" for i in range(30)], "label": [i % 2 for i in range(30)]},
        features=datasets.Features(
            {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])}
        ),
    )
    test = datasets.Dataset.from_dict({"text": ["test"]})
    folder = str(tmp_path / "saved")
    datasets.DatasetDict(train=train, test=test).save_to_disk(folder, num_shards={"train": 3, "test": 1})
    return folder


def test_a_saved_dataset_dict(saved):
    paths = data_files(files.walk(saved))
    assert [os.path.relpath(path, saved) for path in paths] == [
        "test/data-00000-of-00001.arrow",
        *(f"train/data-0000{i}-of-00003.arrow" for i in range(3)),
    ]
    for options in (ReadOptions(), ReadOptions(format="huggingface")):
        texts = [text for path in paths for text in read_all(path, options).texts]
        assert texts == ["test", *(f"train {i}" for i in range(30))]


def test_caches_beside_the_data_are_left_out(saved):
    before = data_files(files.walk(saved))
    folder = os.path.join(saved, "train")
    datasets.load_from_disk(folder).map(
        lambda row: {"text": row["text"].upper()}, cache_file_name=os.path.join(folder, "cache-1.arrow")
    )
    assert os.path.exists(os.path.join(folder, "cache-1.arrow"))
    assert data_files(files.walk(saved)) == before


def test_damaged_folders(saved):
    os.remove(os.path.join(saved, "train", "data-00001-of-00003.arrow"))
    with pytest.raises(FarspanError, match=r"names .*data-00001-of-00003.arrow, which is missing"):
        data_files(files.walk(saved))
    with open(os.path.join(saved, "test", "state.json"), "w") as file:
        file.write("{}")
    with pytest.raises(FarspanError, match="not the state of a saved dataset"):
        data_files(files.walk(saved))


def test_other_files_are_no_business_of_it(tmp_path):
    paths = [str(tmp_path / name) for name in ("a.jsonl", "data-1.arrow", "state.json")]
    assert data_files(paths) == paths
