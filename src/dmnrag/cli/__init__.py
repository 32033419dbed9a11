"""The command line: options to settings, results to text or JSON. No logic of its own."""
