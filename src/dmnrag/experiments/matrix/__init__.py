"""The matrix of an experiment: from a spec over cells to a results folder.

spec, spec_files   what is wanted (TOML)
rows, cells        the paper's rows as values; every cell that a spec asks for
corpora            index, held-out questions, trained retrievers
domains, controls  which domain and which documents a question gets
evidence           the documents of each cell, found once
llms               LLMs, their identity, trained adapters
cache, asking      answers, each asked for once, kept as they come
finishing          predictions, figures and cost of a cell
runner, planning   doing it, and saying beforehand what would be done
"""
