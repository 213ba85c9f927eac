"""Jobs and the engine that runs them: tasks, workers, progress, receipts, locks."""
