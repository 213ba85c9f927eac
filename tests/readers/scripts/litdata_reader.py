"""Read chunks with litData: StreamingDataset with a TokensLoader, in batches of its DataLoader."""

import json
import sys

import numpy as np
from litdata import StreamingDataLoader, StreamingDataset
from litdata.streaming.item_loader import TokensLoader

if __name__ == "__main__":
    folder, arguments, out = sys.argv[1:]
    options = json.loads(arguments)
    data = StreamingDataset(folder, item_loader=TokensLoader(block_size=options["length"] + 1), shuffle=False)
    batches = list(StreamingDataLoader(data, batch_size=4))
    np.savez(out, tokens=np.concatenate([batch.numpy() for batch in batches]))
