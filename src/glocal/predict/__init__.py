"""Prediction and its uses: bulk output, explanations, ensembles, evaluation."""
