"""Tasks: rendering of pairs (questions or summaries about documents) as inputs of encoder and decoder."""
