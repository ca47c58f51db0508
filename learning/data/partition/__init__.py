"""Divide examples among hospitals: groups, held-out data, partitions."""
