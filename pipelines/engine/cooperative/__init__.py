"""The engine without an engine: any number of processes with the same command share a job through files."""
