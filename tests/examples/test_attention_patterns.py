"""The panels of the figure against the gradients of the layers that they stand for."""

import pytest
import torch

from examples import attention_patterns as figure
from trainer.model.context import make_context
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.pooled import PooledAttention
from trainer.model.layers.sublayers import NormConfig
from trainer.model.patterns.tglobal import TGlobal

HEADS, WIDTH = HeadsConfig(count=1), 4


def reached(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """``(Q, K)`` bool: the keys ``(1, K, ...)`` that have a gradient of each query in ``(1, Q, ...)``."""
    totals = queries[0].flatten(1).square().sum(1)
    rows = [torch.autograd.grad(total, keys, retain_graph=True)[0][0].flatten(1).abs().amax(1) > 0 for total in totals]
    return torch.stack(rows)


def by_gradients(panel: figure.Panel) -> torch.Tensor:
    """What ``panel`` attends to, by the values that reach each query."""
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

    drawn = {type(panel.pattern) for panel in figure.PANELS}
    assert drawn == set(AnyPattern.__args__), "add a panel to PANELS in examples/attention_patterns.py"
