"""Label vocabularies: label table, label space of a model, frequency bands, label text."""
