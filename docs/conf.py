"""Sphinx: `make docs` builds these pages as HTML."""

project = "FedDC"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "FedDC"
root_doc = "index"
exclude_patterns = ["results/*.json", "services/*"]
myst_heading_anchors = 4
# Links to files of the repository that are not pages.
suppress_warnings = ["myst.xref_missing", "toc.not_included", "myst.header"]
