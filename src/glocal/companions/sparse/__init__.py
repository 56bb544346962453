"""The sparse companion: TF-IDF features of words and word pairs, one linear scorer per label."""
