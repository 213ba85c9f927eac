"""The encoder-decoder and the masked language model. Independent of data, devices and parallelism."""
