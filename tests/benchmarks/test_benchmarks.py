"""The modules that benchmarks share."""

import json
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import __main__ as benchmarks
from benchmarks import gpu
from benchmarks.iclm_chains import published_algorithm, published_code
from benchmarks.made_corpus import VOCAB, make_corpus, make_masks
from benchmarks.report import HEADINGS, Comparison, arguments, comparison_rows, in_turn, machine, publish
from benchmarks.synthetic import DIMENSION, Topics, blocks, ids, sketches, token_lengths
from benchmarks.t5_collators import flax, flax_mask, t5, t5_mask
from corpora.schemas.corpus import Corpus
from objectives.api.mask_set import MaskSet
from objectives.api.protocol import load_objective

FOLDER = Path(__file__).parents[2] / "benchmarks"
PARTS = {"bare_pool.py", "datatrove_pipeline.py", "megatron_pool.py", "peer_readers.py", "text.py"}
"""Scripts that others run: a side of a comparison, and the text."""


def test_every_script_is_run_or_named():
    scripts = {path.name for path in FOLDER.glob("*.py") if 'if __name__ == "__main__":' in path.read_text("utf-8")}
    scripts -= {"__main__.py"}
    listed = set(benchmarks.SCRIPTS)
    assert listed <= scripts
    alone = {name for name in scripts - listed - PARTS if name not in (benchmarks.__doc__ or "")}
    assert alone == set()
    assert all(name in "".join((FOLDER / other).read_text("utf-8") for other in scripts - {name}) for name in PARTS)


def test_options_are_refused(monkeypatch):
    monkeypatch.setattr("sys.argv", ["benchmarks", "--rounds", "3"])
    with pytest.raises(SystemExit, match="Options go to no script"):
        benchmarks.main()


# each row begins with the document itself; 0 - 1 - 2 in a line, 3 with nobody near
LINE = np.array([[0, 1, 2], [1, 0, 2], [2, 1, 0], [3, 3, 3]], np.int32)
WEIGHTS = np.array([[1, 0.9, 0.1], [1, 0.9, 0.8], [1, 0.8, 0.1], [1, 0, 0]], np.float32)


def test_the_algorithm_begins_where_degree_is_least_and_takes_the_heaviest_link():
    assert published_algorithm(LINE[:3], WEIGHTS[:3]) == [0, 1, 2]
    # 3 is linked to itself alone: one link, where the others have two
    assert published_algorithm(LINE, WEIGHTS) == [3, 0, 1, 2]


def test_the_code_takes_the_first_unseen_neighbour_and_cuts_chains():
    assert published_code(LINE, chain=9) == [0, 1, 2, 3]
    # after one step a chain ends: 0 1 | 2 ...; a short chain's document goes before its first neighbour elsewhere
    assert sorted(published_code(np.array([[0, 1], [1, 2], [2, 1], [3, 2]], np.int32), chain=1)) == [0, 1, 2, 3]


@given(st.integers(1, 30), st.integers(1, 5), st.integers(1, 6), st.integers(0, 2**31))
def test_every_document_comes_once(count, near, chain, seed):
    rng = np.random.default_rng(seed)
    near = min(near, count - 1)
    others = [[row, *rng.permutation(np.delete(np.arange(count), row))[:near].tolist()] for row in range(count)]
    rows = np.array(others, np.int32)
    similarities = rng.random(rows.shape, np.float32)
    everything = list(range(count))
    assert sorted(published_algorithm(rows, similarities)) == everything
    assert sorted(published_code(rows, chain=chain)) == everything


def test_rows_fill_the_encoder_and_masks_belong_to_them(tmp_path):
    corpus, masks = str(tmp_path / "corpus"), str(tmp_path / "masks")
    make_corpus(corpus, rows=20, length=512, shards=2)
    opened = Corpus(corpus, verify=True)
    assert len(opened) >= 20
    batch = opened.take(np.arange(len(opened)))
    used = batch.tokens.lengths + batch.document_starts.lengths + 2
    assert (used <= 512).all()
    assert np.sort(used)[2:].min() == 512, "all but the last of each shard are full"
    assert batch.tokens.compact().values.max() < VOCAB
    make_masks(masks, corpus, load_objective("span", "bart_ls"))
    stored = MaskSet(masks, verify=True)
    stored.check_parent(opened)
    rows = np.arange(5)
    examples = stored.objective.render(opened.take(rows), stored.masks(opened.take(rows), rows), stored.special_tokens)
    assert (examples.source_lengths <= 512).all()
    assert (examples.target_lengths > 10).all()


TWICE = Comparison("ours", "theirs", "rows/s", [200.0, 30.0, 4000.0], [100.0, 10.0, 4000.0], goal=2)


def test_the_ratio_is_the_median_of_the_rounds():
    """Not the ratio of the medians, 200 / 100: a round in which the machine was slow counts as any other."""
    assert TWICE.ratios == [2.0, 3.0, 1.0]
    assert TWICE.ratio == 2.0
    (row,) = comparison_rows([TWICE])
    assert dict(zip(HEADINGS, row, strict=True)) == {
        "farspan": "ours",
        "peer": "theirs",
        "unit": "rows/s",
        "farspan's rate": "200",
        "peer's rate": "100",
        "ratio": "2.00x",
        "lowest..highest": "1.00..3.00",
        "goal": "2x",
    }


def test_runs_take_turns_and_the_first_round_is_not_counted():
    calls = []
    seconds = in_turn({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=2)
    assert calls == ["a", "b"] * 3
    assert {name: len(times) for name, times in seconds.items()} == {"a": 2, "b": 2}
    assert all(time >= 0 for times in seconds.values() for time in times)


def test_a_table_is_printed_and_what_was_measured_is_written(tmp_path, capsys):
    environment = machine("numpy")
    assert environment.keys() == {"processor", "cores", "python", "farspan", "numpy"}
    file = tmp_path / "measured.json"
    options = arguments("A benchmark.", rounds=3).parse_args(["--json", str(file)])
    assert (options.rounds, options.json) == (3, str(file))
    publish("Title", HEADINGS, comparison_rows([TWICE]), environment, options.json, {"rows": [1, 2]})
    title, headings, rule, row, versions = capsys.readouterr().out.strip().splitlines()
    assert title == "Title"
    assert headings.index("ratio") == row.index("2.00x") == rule.index("-" * 5, row.index("2.00x") - 1)
    assert f"numpy {environment['numpy']}" in versions
    assert json.loads(file.read_text()) == {"title": "Title", "environment": environment, "measured": {"rows": [1, 2]}}


ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_two_hundred_thousand_vectors_keep_their_recall_in_two_gigabytes(tmp_path):
    measured = tmp_path / "measured.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "scale.py"), "--documents", "200000", "--json", str(measured)]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    steps = {step["name"]: step for step in json.loads(measured.read_text())["measured"]["steps"]}
    neighbours = steps["neighbours"]
    assert neighbours["recall"]["of 10"] >= 0.95
    assert neighbours["recall"]["of k"] >= 0.93
    assert {name for name, step in steps.items() if step["memory"] > 2 << 30} == set()
    assert list(steps) == ["cluster", "one cluster", "neighbours", "link"]


def test_blocks_cover_every_document_once():
    assert [size for _, size in blocks(40_000)] == [16_384, 16_384, 7_232]
    assert blocks(1) == [(0, 1)]
    assert ids(3, 2).to_pylist() == ["synthetic:00003:0", "synthetic:00003:1"]


def test_vectors_have_length_1_and_some_repeat_the_one_before():
    topics = Topics(5_000)
    vectors, repeats = topics.vectors(0, 2_000)
    again, _ = Topics(5_000).vectors(0, 2_000)
    assert np.array_equal(vectors, again)
    assert not np.array_equal(vectors, topics.vectors(1, 2_000)[0])
    assert (vectors.shape, vectors.dtype.name) == ((2_000, DIMENSION), "float16")
    wide = vectors.astype(np.float32)
    assert np.allclose(np.linalg.norm(wide, axis=1), 1, atol=2e-3)
    cosines = (wide[1:] * wide[:-1]).sum(axis=1)
    assert 15 < repeats.sum() < 70
    assert not repeats[0]
    near = repeats[1:] & ~repeats[:-1]  # a document repeats the one before as that was drawn, before it repeated one
    assert cosines[near].min() > 0.95 > np.median(cosines[~repeats[1:]])


def test_documents_that_repeat_have_the_sketch_before():
    repeats = np.array([False, False, True, False])
    rows = sketches(0, repeats)
    assert np.array_equal(rows[2], rows[1])
    assert not np.array_equal(rows[3], rows[1])
    assert all((np.diff(rows[row].astype(np.int64)) > 0).all() for row in range(4))
    lengths = token_lengths(0, 5_000)
    assert (lengths.min() >= 20) & (lengths.max() <= 4_000)
    assert 300 < lengths.mean() < 400


PIECES, END = 400, 1


@pytest.mark.parametrize("length", [20, 100, 511])
@pytest.mark.parametrize("make", [lambda size, rng: t5_mask(size, rng), lambda size, rng: flax_mask(size)])
def test_a_mask_hides_15_percent_in_spans_of_three(length, make):
    mask = make(length, np.random.default_rng(0))
    noise = max(round(0.15 * length), 1)
    begins = mask & ~np.concatenate([[False], mask[:-1]])
    assert (mask.shape, mask.sum(), begins.sum()) == ((length,), noise, max(round(noise / 3), 1))
    assert not mask[0]
    assert mask[-1]


def restored(source: np.ndarray, target: np.ndarray) -> list[int]:
    """The text, with what follows each sentinel of the target in the place of that sentinel in the source."""
    hidden: dict[int, list[int]] = {}
    for token in target[:-1].tolist():
        if token >= PIECES - 50:
            hidden[token] = []
        else:
            hidden[list(hidden)[-1]].append(token)
    text = []
    for token in source[:-1].tolist():
        text += hidden.get(token, [token])
    return text


def test_source_and_target_are_the_text():
    tokens = np.random.default_rng(1).integers(2, PIECES - 50, (4, 100)).astype(np.int32)
    for source, target in (t5(tokens, PIECES, END, np.random.default_rng(2)), flax(tokens, PIECES, END)):
        assert (source[:, -1] == END).all()
        assert (target[:, -1] == END).all()
        for row, text in enumerate(tokens):
            assert restored(source[row], target[row]) == text.tolist()
            sentinels = [token for token in source[row].tolist() if token >= PIECES - 50]
            assert sentinels == list(range(PIECES - 1, PIECES - 1 - len(sentinels), -1))


def test_a_part_for_a_gpu_that_fails_does_not_stop_the_others(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu.Parts, "kernels", Mock(side_effect=RuntimeError("no such kernel\nmore")))
    monkeypatch.setattr(gpu.Parts, "all", lambda self, _: iter({"kernels": self.kernels, "20": self.long_run}.items()))
    measured = tmp_path / "measured.json"
    assert gpu.main(["--device", "cpu", "--json", str(measured)]) == 1
    assert "failed or missed:\nkernels: failed: RuntimeError: no such kernel" in capsys.readouterr().out
    figures = json.loads(measured.read_text())["measured"]
    assert "Traceback" in figures["kernels"][0]["numbers"]["traceback"]
    assert figures["20"][0]["met"] is True
    assert len(figures["20"][0]["numbers"]["losses"]) == 20


@pytest.mark.slow
def test_every_part_for_a_gpu_works_at_small_size(capsys):
    assert gpu.main(["--device", "cpu", "--no-compile"]) == 0
    shown = capsys.readouterr().out
    assert "nothing failed" in shown
    parts = [name for name, _ in gpu.Parts(torch.device("cpu")).all(compiled=False)]
    assert all(name in shown for name in parts)
