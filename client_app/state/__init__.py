"""What the hospital remembers: store, experiments, audit log."""
