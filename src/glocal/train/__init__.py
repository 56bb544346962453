"""Training: one loop for every system and every machine."""
