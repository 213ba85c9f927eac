"""ROUGE of whole blocks of texts, in compiled code: words (``words``), n-grams of them, and what scores them."""
