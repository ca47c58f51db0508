"""Pages of runs: reports in one file, and the dashboard; one reader, one script draws both."""
