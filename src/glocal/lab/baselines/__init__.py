"""What people use today, through maintained libraries: one file for each library.

`baseline_registry.BASELINES` lists them; each is fitted on a corpus and the label space of our own
models, and returns `Predictions` in that space, so that the same code measures everything.
"""
