"""Text generation with an encoder-decoder: greedy decoding, beam search, sampling."""
