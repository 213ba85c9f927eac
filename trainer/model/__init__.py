"""The encoder-decoder and the masked language model, independent of data, devices and parallelism."""
