"""The encoder-decoder, its attention patterns and its MLM head; nothing here knows of parallelism."""
