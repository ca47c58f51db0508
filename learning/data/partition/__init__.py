"""Who gets which examples: held-out data, groups, partitions."""
