"""Public test tools: contract suites that every back end passes, and small fakes of models."""
