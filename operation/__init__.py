"""What programs of all sides need: files, locks, signals, processes, logs, the command line."""
