"""Probes: questions about long texts made from any documents, to measure what a model finds at which length."""
