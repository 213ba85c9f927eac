"""Bytes of the formats whose readers cannot be installed, and Parquet as ``datasets`` reads it."""

from itertools import pairwise
from typing import get_args

import numpy as np
import pyarrow.parquet as pq
import pytest

import farspan
from objectives.api.mask_set import MaskSet
from pipelines.export.formats import FORMATS
from pipelines.options import FormatName
from tests.artefacts import all_rows, make_corpus

EOS = 2


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("artefacts")
    corpus = make_corpus(str(root / "corpus"), shards=2, documents=60)
    farspan.mask("span", corpus=corpus, output=root / "masks", preset="bart_ls_mixed", workers=1)
    return root


def lists(folder, column):
    return [row for path in sorted(folder.glob("*.parquet")) for row in pq.read_table(path)[column].to_pylist()]


def test_every_format_has_a_name():
    assert set(get_args(FormatName)) == set(FORMATS)


def test_fairseq_has_lengths_and_offsets_after_its_header(folders, tmp_path):
    farspan.export(folders / "corpus", to="fairseq", output=tmp_path / "out", unit="documents", files=1, workers=1)
    (index,), (data,) = ((path.read_bytes() for path in (tmp_path / "out").glob(f"*.{end}")) for end in ("idx", "bin"))
    magic, version, code, count = index[:9], index[9:17], index[17], int.from_bytes(index[18:26], "little")
    assert (magic, version, code) == (b"MMIDIDX\0\0", (1).to_bytes(8, "little"), 8)
    lengths = np.frombuffer(index, "<i4", count, 26)
    offsets = np.frombuffer(index, "<i8", count, 26 + 4 * count)
    assert len(index) == 26 + 12 * count
    items = [np.frombuffer(data, "<u2", n, at).tolist() for n, at in zip(lengths, offsets, strict=True)]
    expected = []
    for row in all_rows(folders / "corpus", "farspan.corpus"):
        edges = [*row["document_starts"], len(row["tokens"])]
        expected += [[*row["tokens"][a:b], EOS] for a, b in pairwise(edges)]
    assert items == expected


def test_datasets_read_rows_with_the_lengths_of_documents(folders, tmp_path):
    datasets = pytest.importorskip("datasets")
    farspan.export(folders / "corpus", to="parquet", output=tmp_path / "out", workers=1)
    rows = datasets.load_dataset(str(tmp_path / "out"), split="train", cache_dir=str(tmp_path / "cache"))
    stored = all_rows(folders / "corpus", "farspan.corpus")
    assert len(rows) == len(stored)
    for row, source in zip(rows, stored, strict=True):
        ends = np.cumsum(row["seq_lengths"])
        assert ends[-1] == len(row["input_ids"])
        parts = np.split(row["input_ids"], ends[:-1])
        edges = [*source["document_starts"], len(source["tokens"])]
        for number, part in enumerate(parts):
            text = source["tokens"][edges[number] : edges[number + 1]]
            assert part.tolist() in ([*text, EOS], text)
            if part.tolist() == text:  # cut by the end of the row
                assert number + 1 == len(parts)
                assert source["document_offsets"][number] + len(text) < source["document_lengths"][number]


def test_source_and_target_are_those_of_training(folders, tmp_path):
    farspan.export(folders / "masks", to="parquet", output=tmp_path / "out", workers=1)
    corpus, masks = farspan.open_corpus(folders / "corpus"), MaskSet(str(folders / "masks"))
    numbers = np.arange(len(corpus))
    examples = masks.objective.render(corpus.take(numbers), masks.take(numbers), masks.special_tokens)
    sources, targets = (lists(tmp_path / "out", name) for name in ("input_ids", "labels"))
    assert len(sources) == len(numbers)
    for row in numbers:
        assert sources[row] == examples.source_ids[row, : examples.source_lengths[row]].tolist()
        assert targets[row] == examples.target_ids[row, : examples.target_lengths[row]].tolist()


def test_bridge_looks_up_losses_by_the_position_that_predicts(folders, tmp_path):
    farspan.export(folders / "masks", to="megatron-bridge", output=tmp_path / "bridge", workers=1)
    farspan.export(folders / "masks", to="parquet", layout="stream", output=tmp_path / "plain", workers=1)
    ids, labels = (lists(tmp_path / "plain", name) for name in ("input_ids", "labels"))
    assert lists(tmp_path / "bridge", "input_ids") == ids
    for row, losses in zip(labels, lists(tmp_path / "bridge", "loss_mask"), strict=True):
        assert losses == [*(int(label >= 0) for label in row[1:]), 0]
    assert lists(tmp_path / "bridge", "seq_start_id") == [[0]] * len(ids)


def test_bridge_predicts_nothing_across_documents(folders, tmp_path):
    farspan.export(folders / "corpus", to="megatron-bridge", output=tmp_path / "out", workers=1)
    columns = (lists(tmp_path / "out", name) for name in ("input_ids", "loss_mask", "seq_start_id"))
    for ids, losses, starts in zip(*columns, strict=True):
        last = {*(start - 1 for start in starts[1:]), len(ids) - 1}
        assert losses == [int(place not in last) for place in range(len(ids))]
