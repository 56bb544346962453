"""Clusters: labels sharded over processes, and Ray; the only files that know of either."""
