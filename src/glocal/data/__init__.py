"""Corpora: reading, caching, splitting and inspecting them."""
