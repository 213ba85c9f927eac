"""Tokenizers: SentencePiece models and Hugging Face tokenizers behind one protocol::

    tokenizer = load_tokenizer("tokenizer.json")
    ids, starts = tokenizer.encode_with_starts(["Hello world."])
    text, characters = tokenizer.decode_with_offsets(ids[0])

``load`` chooses the class that reads a file; ``training`` has a function for each kind to train.
"""
