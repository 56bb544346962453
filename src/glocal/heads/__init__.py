"""Output layers: label probabilities from the vector of a document."""
