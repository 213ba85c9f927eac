"""``farspan documents`` and ``farspan tokenizer``: raw text to tokenised documents."""
