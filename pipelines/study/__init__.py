"""Studies: a grid of commands from one file, run once each, and tables of differences with intervals."""
