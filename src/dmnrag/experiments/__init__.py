"""Measuring: retrieval and answers on held-out questions, each figure with its interval."""
