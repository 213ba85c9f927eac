"""Pretrained encoders and masked language models that score texts and spans."""
