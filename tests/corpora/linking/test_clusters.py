"""Clusters read from a neighbours shard."""

from __future__ import annotations

import numpy as np

from corpora.linking.clusters import clusters_of_shard


def test_clusters_do_not_depend_on_record_batches(batches):
    found = list(clusters_of_shard(batches))
    assert [(cluster.number, len(cluster.rows)) for cluster in found] == [(7, 3), (8, 1), (9, 2)]
    lists = [[row.tolist() for row in cluster.neighbours] for cluster in found]
    assert lists == [[[1, 2], [0], []], [[]], [[1], [0]]]  # numbers in the cluster
    similarities = [np.round(cluster.similarities.tolist(), 3).tolist() for cluster in found]
    assert similarities == [[0.9, 0.5, 0.9], [], [2.0, 2.0]]
    assert [np.round(cluster.jaccards.tolist(), 2).tolist() for cluster in found] == [[0.1, 0.85, 0.1], [], [0.0, 0.0]]
