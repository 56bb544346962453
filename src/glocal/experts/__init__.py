"""Experts: how a label is scored from the features of a document."""
