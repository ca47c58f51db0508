"""Turn the records of a sweep into results.json, tables, plots and documentation pages."""
