"""Companions: models of raw text whose output feeds the experts of a system."""
