"""Storage of artefacts: files, shards, manifests, ragged columns. Independent of what the columns mean."""
