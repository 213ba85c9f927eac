"""The cooperative engine: any number of processes with the same command share a job through files."""
