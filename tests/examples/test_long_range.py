"""The long-range check, much smaller: what can reach the symbol learns it, what cannot stays at chance."""

from itertools import pairwise
from unittest.mock import patch

import pytest
import torch

from examples import long_range


def test_a_row_asks_for_its_only_symbol_at_the_distance():
    rows = long_range.make_rows(50, 128, 93, torch.Generator().manual_seed(0))
    symbols = (rows.ids < long_range.SYMBOLS).nonzero()
    asked = rows.asked.nonzero()
    assert symbols[:, 0].tolist() == asked[:, 0].tolist() == list(range(50))
    assert torch.equal(asked[:, 1] - symbols[:, 1], torch.full((50,), 93))
    assert (rows.ids[rows.asked] == long_range.MASK).all()
    assert torch.equal(rows.labels[rows.asked], rows.ids[rows.ids < long_range.SYMBOLS])
    assert len(symbols[:, 1].unique()) > 15


def test_the_last_stage_is_what_the_figure_says():
    last = long_range.STAGES[-1]
    assert (last.length, last.window, last.distance) == (4096, 512, 3000)


@pytest.mark.parametrize("pattern", [*long_range.FAR, *long_range.NEAR])
def test_gradients_reach_the_symbol_just_where_the_pattern_does(pattern):
    stage = long_range.STAGES[0]
    model = long_range.build(pattern, stage.window, 0)
    if pattern == "block + pooling":  # starts at zero, so that step 0 is block attention
        torch.nn.init.normal_(model.encoder.layers[-1].pooling.out.weight)
    rows = long_range.make_rows(4, stage.length, stage.distance, torch.Generator().manual_seed(1))
    task_globals = rows.asked if pattern == "window + task globals" else None
    vectors = []
    model.tokens.register_forward_hook(lambda module, inputs, output: vectors.append(output) or output.retain_grad())
    model.encode(rows.ids, global_positions=task_globals)[rows.asked][:, 0].sum().backward()
    reached = vectors[0].grad[rows.ids < long_range.SYMBOLS].abs().amax(-1) > 0
    assert reached.tolist() == [pattern in long_range.FAR] * 4


def accuracies(pattern, steps, seed=0):
    """Accuracy after every 40 steps, trained as far as it is asked for."""
    points = long_range.learn(pattern, [long_range.Stage(128, 32, steps)], every=40, held_out=256, seed=seed)
    return (point.accuracy for point in points)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["full", "block + pooling"])
def test_patterns_that_reach_the_symbol_learn_it(pattern):
    """The step at which they do depends on the seed and on the last bits of sums; that they do does not."""
    assert any(accuracy > 0.9 for accuracy in accuracies(pattern, 800))


@pytest.mark.slow
def test_disjoint_blocks_cannot_learn_it():
    """256 held-out rows: chance is .125, with a standard deviation of .02."""
    assert all(accuracy < 0.25 for accuracy in accuracies("block", 200))


def test_the_lengths_above_the_curves_do_not_collide(tmp_path):
    """Their boxes in the drawn figure, as matplotlib measures them."""
    curves = {pattern: [long_range.Point(0, 0.0), long_range.Point(440, 1.0)] for pattern in ("full", "block")}
    with patch.object(long_range, "save") as save:
        long_range.draw(curves, str(tmp_path / "figure.svg"))
    plt, figure, _ = save.call_args.args
    figure.draw_without_rendering()
    for axis in figure.axes:
        boxes = sorted((text.get_window_extent() for text in axis.texts), key=lambda box: box.x0)
        assert len(boxes) == len(long_range.STAGES)
        assert all(one.x1 < next.x0 for one, next in pairwise(boxes))
    plt.close(figure)
