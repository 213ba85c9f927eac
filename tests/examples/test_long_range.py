"""Examples that train small models: patterns, facts in chains and far apart."""

import re
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
import torch

from examples import attention_patterns as figure
from examples import long_range, two_hops
from tests.examples.scripts import load_example
from trainer.model.context import make_context
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.pooled import PooledAttention
from trainer.model.layers.sublayers import NormConfig
from trainer.model.patterns.tglobal import TGlobal


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


fact_chains = load_example("fact_chains")


def test_each_chain_has_names_of_its_own_and_a_thing():
    drawn = fact_chains.draw(fact_chains.Chains(count=4, hops=3, names=12), np.random.default_rng(0))
    names = [name for chain in drawn.names for name in chain]
    assert len(set(names)) == 12
    assert set(names) <= set(fact_chains.NAMES[:12])
    assert len(drawn.things) == 4
    assert set(drawn.things) <= set(fact_chains.THINGS[:8])


def test_questions_and_answers_name_the_same():
    drawn = fact_chains.Drawn([["Mary", "Paul"], ["John", "Karl"]], ["gold", "iron"])
    assert drawn.question([(0, 1)]) == "What does Paul have?"
    assert drawn.question([(1, 1), (0, 0)]) == "What do Karl and Mary have?"
    assert drawn.answer([(1, 1), (0, 0)]) == " Karl iron, Mary gold"


def test_a_training_question_asks_for_names_of_any_chains():
    """A name of each chain would give the last answers away."""
    chains = fact_chains.Chains(count=3, hops=2)
    asked = fact_chains.asked(chains, "train", 200, np.random.default_rng(0))
    assert all(len(set(names)) == 3 for names in asked)
    of_all = np.mean([len({chain for chain, _ in names}) == 3 for names in asked])
    assert of_all == pytest.approx(6 * 4 * 2 / (6 * 5 * 4), abs=0.1)


def test_other_questions_ask_for_each_name_once():
    asked = fact_chains.asked(fact_chains.Chains(count=3, hops=2), "test", 9, np.random.default_rng(0))
    assert sorted(names for (names,) in asked) == [(chain, hop) for chain in range(3) for hop in range(2)]


@pytest.mark.parametrize("places", ["together", "anywhere", "apart"])
def test_facts_stand_between_all_sentences_in_their_order(places):
    drawn = fact_chains.Drawn([["Mary", "Paul"], ["John", "Karl"]], ["gold", "iron"])
    sentences = [f"Sentence {number}." for number in range(6)]
    for seed in range(20):
        text = fact_chains.with_facts(sentences, drawn, places, np.random.default_rng(seed))
        assert re.findall(r"Sentence \d", text) == [f"Sentence {number}" for number in range(6)]
        assert ("Mary has gold. Paul follows Mary." in text) >= (places == "together")
        rest = re.sub(r"Sentence \d\. ?", "", text).strip()
        assert rest.startswith("Facts: ")
        found = sorted(re.findall(r"\w+ \w+ \w+\.", rest))
        assert found == ["John has iron.", "Karl follows John.", "Mary has gold.", "Paul follows Mary."]


def test_more_names_or_things_than_there_are():
    with pytest.raises(ValueError, match="4 chains of 3 hops need 12 names of 8; there are"):
        fact_chains.Chains(count=4, hops=3)
    with pytest.raises(ValueError, match="things is 40; there are"):
        fact_chains.Chains(things=40)


HEADS, WIDTH = HeadsConfig(count=1), 4


def reached(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """``(Q, K)`` bool: the keys ``(1, K, ...)`` that have a gradient of each query in ``(1, Q, ...)``."""
    totals = queries[0].flatten(1).square().sum(1)
    rows = [torch.autograd.grad(total, keys, retain_graph=True)[0][0].flatten(1).abs().amax(1) > 0 for total in totals]
    return torch.stack(rows)


def by_gradients(panel: figure.Panel) -> torch.Tensor:
    """The keys that ``panel`` attends to, by the values that reach each query."""
    torch.manual_seed(0)
    pattern, places = panel.pattern, panel.pattern.extra_tokens + figure.LENGTH
    chosen = torch.isin(torch.arange(figure.LENGTH), torch.tensor(panel.chosen))[None] if panel.chosen else None
    context = make_context(global_positions=chosen)
    x = torch.randn(1, places, WIDTH, requires_grad=True)
    if panel.chosen:  # the layer, as global positions have projections of their own
        return reached(pattern.layer(WIDTH, HEADS, NormConfig(), 0.0)(x, context), x)
    sides = figure.LENGTH // pattern.block if isinstance(pattern, TGlobal) else 0
    q, k = (torch.randn(1, count, 1, WIDTH) for count in (places, places + sides))
    v = torch.randn(1, places + sides, 1, WIDTH, requires_grad=True)
    seen = reached(pattern.attend(q, k, v, context), v)
    if panel.pooling is None:
        return seen
    layer, windows = PooledAttention(WIDTH, HEADS, panel.pooling, 0.0), []
    layer.kv.register_forward_hook(lambda module, inputs, output: windows.append(output))
    mixed = layer(x, context)
    return torch.cat([seen, reached(mixed, windows[0])], 1)


@pytest.mark.parametrize("panel", figure.PANELS, ids=lambda panel: panel.title.replace("\n", " "))
def test_a_panel_shows_what_the_layer_attends_to(panel):
    assert torch.equal(figure.kinds(panel) != figure.NOTHING, by_gradients(panel))


def test_the_figure_has_a_panel_for_every_pattern():
    from trainer.model.patterns import AnyPattern
    from trainer.model.patterns.layered import Layered  # chooses the others by layer

    drawn = {type(panel.pattern) for panel in figure.PANELS}
    assert drawn == set(AnyPattern.__args__) - {Layered}, "add a panel to PANELS in examples/attention_patterns.py"
