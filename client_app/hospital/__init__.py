"""What the hospital answers and refuses: legs, keys, policy, training."""
