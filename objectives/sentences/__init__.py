"""Selection of sentences: strategies, entities, pyramids, treatments and target budgets."""
