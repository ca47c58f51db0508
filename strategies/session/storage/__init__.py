"""What survives a crash of the coordinator."""
