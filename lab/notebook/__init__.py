"""FedDC in notebooks and scripts: run, open and compare runs, as tables, frames and figures."""
