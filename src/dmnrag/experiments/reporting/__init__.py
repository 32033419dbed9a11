"""Reports: from a results folder to tables, figures, claims and one HTML page.

Reads `dmnrag.experiments.results` only: nothing here knows an index or asks an LLM, but for `judge`, which asks one
to compare answers. A file has one purpose:

    study       what a folder holds, cells that differ in the seed alone taken together
    measures/   more than ROUGE: support by documents, diversity, domain agreement, the documents given
    panels      which cells stand in one table
    families    which differences are tested together, with Holm's correction
    table       a table as a value; as Markdown, CSV, LaTeX
    methods_tables, more_tables   the tables
    figures     figures 2 to 5
    claims      the paper's nine claims
    domains, examples             where methods differ
    comparison  two folders
    raters, judge                 people and LLMs as judges
    page        the HTML page
    write       everything together
"""
