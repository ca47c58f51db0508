"""Who takes part in a study, and how its members reach the coordinator."""
