"""Sentence-level selection: scores, entities, pyramids and target budgets."""
