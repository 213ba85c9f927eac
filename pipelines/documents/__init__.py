"""``farspan documents`` and ``farspan tokenizer``: tokenised documents from raw text."""
