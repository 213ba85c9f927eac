"""The check of two hops, much smaller: its rows, the reach of gradients, and the start of the second stage."""

import numpy as np
import pytest
import torch

from examples import two_hops


def facts(row):
    """Name -> (thing or None, name it follows or None, position) of each fact of a row."""
    found = {}
    for place, verb in enumerate(row):
        if verb in (two_hops.HAS, two_hops.FOLLOWS):
            name, other = row[place - 1], row[place + 1]
            found[name] = (other, None, place) if verb == two_hops.HAS else (None, other, place)
    return found


@pytest.mark.parametrize(("length", "together"), [(32, 0.0), (32, 1.0), (32, 0.5), (64, 0.0)])
def test_answers_follow_the_facts(length, together):
    rows = two_hops.make_rows(40, length, np.random.default_rng(0), together)
    near = []
    for ids, questions, labels, hops in zip(*(column.tolist() for column in rows), strict=True):
        found = facts(ids)
        assert len(found) == 6
        for name, label, hop in list(zip(questions, labels, hops, strict=True))[::2]:
            thing, leader, place = found[name]
            assert hop == (2 if leader else 1)
            if leader:
                thing = found[leader][0]
                near.append(place - found[leader][2] == two_hops.SLOT)
                if length == two_hops.LONG:
                    assert (place < 32) != (found[leader][2] < 32)
            assert label == thing
        assert set(questions[1::2]) == {two_hops.ASKED}
        assert sorted(questions[::2]) == sorted(found)
    assert np.mean(near) >= together


@pytest.mark.parametrize("pattern", two_hops.PATTERNS)
def test_only_disjoint_blocks_keep_the_halves_apart(pattern):
    """Gradients at a position of the second half reach the first half's tokens."""
    model = two_hops.build(pattern, 0)
    if pattern == "block + pooling":  # starts at zero, so that step 0 is block attention
        torch.nn.init.normal_(model.encoder.layers[-1].pooling.out.weight)
    rows = two_hops.make_rows(4, two_hops.LONG, np.random.default_rng(0))
    vectors = []
    model.tokens.register_forward_hook(lambda module, inputs, output: vectors.append(output) or output.retain_grad())
    model.encode(rows.ids)[0][:, two_hops.BLOCK :].square().sum().backward()
    reached = bool(vectors[0].grad[:, : two_hops.BLOCK].abs().max() > 1e-9)
    assert reached == (pattern != "block")


@pytest.mark.parametrize("pattern", two_hops.PATTERNS)
def test_the_second_stage_begins_with_the_short_model(pattern):
    """In a row of one block all patterns but tglobal compute what the short model did."""
    short, model = two_hops.build("full", 0), two_hops.build(pattern, 1)
    missing, unexpected = model.load_state_dict(short.state_dict(), strict=False)
    assert not unexpected
    assert all("pooling" in name or "side" in name or name == "encoder.biases.1.weight" for name in missing), missing
    if pattern != "tglobal":
        ids = two_hops.make_rows(2, two_hops.SHORT, np.random.default_rng(0)).ids
        assert torch.allclose(model.encode(ids)[0], short.encode(ids)[0], atol=1e-5)


def test_learning_is_a_function_of_the_seed():
    points = [list(two_hops.learn(two_hops.build("full", 0), 32, 0.5, 8, 4, 1e-3, 0, every=2)) for _ in range(2)]
    assert points[0] == points[1]
    assert [point.step for point in points[0]] == [0, 2, 4]


def test_figure(tmp_path):
    curves = {pattern: [[two_hops.Point(0, 0.5, 0.4), two_hops.Point(50, 1.0, 0.9)]] for pattern in two_hops.PATTERNS}
    two_hops.draw(curves, str(tmp_path / "figure.svg"))
    text = (tmp_path / "figure.svg").read_text()
    assert all(f">{pattern}</text>" in text for pattern in two_hops.PATTERNS)
