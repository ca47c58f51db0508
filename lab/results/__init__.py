"""From records to what a researcher reads: results.json, tables, plots, the docs' pages."""
