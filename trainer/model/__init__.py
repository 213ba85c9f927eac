"""The encoder-decoder and the masked language model, independent of data, devices and parallelism.

``patterns`` has one module per attention pattern of the encoder.
"""
