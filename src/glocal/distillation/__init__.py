"""Distillation: a small student learns from a large teacher's probabilities."""
