"""How artefacts lie on disk: files, shards, manifests, ragged columns. Knows no column's meaning."""
