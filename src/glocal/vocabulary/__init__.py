"""Label vocabularies: the label space of a model, hierarchy, frequency bands, label text."""
