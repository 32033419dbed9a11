"""Retrieval: a sparse layer, a dense layer, and how they answer together."""
