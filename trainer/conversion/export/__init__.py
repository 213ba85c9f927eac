"""Files beside the weights in an exported folder: tokenizer, generation settings and model card."""
