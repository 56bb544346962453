"""Benchmarks: recipes and baselines on one data set, each in its own process."""
