"""Output layers that give probabilities of labels from the vector of a document."""
