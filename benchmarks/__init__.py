"""What is measured, each module printing one JSON line with --json."""
