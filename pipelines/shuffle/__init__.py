"""Documents dealt out to shards: spill, merge, pack."""
