"""The encoder-decoder and the masked language model. Knows nothing of data, devices or parallelism."""
