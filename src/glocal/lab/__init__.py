"""The research harness: ablations, sweeps, benchmarks and baselines, their tables and plots."""
