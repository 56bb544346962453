"""Baselines: methods of other libraries, one file for each library.

`baselines.toml` lists them. Each is fitted on a corpus and the label space a recipe
would have, and returns `Predictions` in that space, so that the same code measures everything.
"""
