"""Read ``.ds`` files with datatrove, in batches of a DataLoader, with positions by index and by the end's id."""

import json
import sys

import numpy as np
import torch
from datatrove.utils.dataset import DatatroveFolderDataset

folder, arguments, out = sys.argv[1:]
options = json.loads(arguments)


def read(**further):
    data = DatatroveFolderDataset(
        folder, options["length"], token_size=np.dtype(options["dtype"]).itemsize, return_positions=True, **further
    )
    batches = list(torch.utils.data.DataLoader(data, batch_size=4))
    return [np.concatenate([batch[name].numpy() for batch in batches]) for name in ("input_ids", "positions")]


tokens, by_index = read()
_, by_end = read(positions_from_eos_token_id=options["eos"])
np.savez(out, tokens=tokens, by_index=by_index, by_end=by_end)
