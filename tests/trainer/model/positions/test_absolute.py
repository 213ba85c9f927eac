from __future__ import annotations

import torch

from trainer.model.positions.absolute import tile_positions


def test_tiles_start_each_block_at_row_zero():
    rows = torch.arange(8.0).reshape(4, 2)
    tiled = tile_positions(rows, 10)
    assert torch.equal(tiled, rows[torch.arange(10) % 4])
    assert torch.equal(tile_positions(rows, 3), rows[:3])
