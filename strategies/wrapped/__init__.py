"""Any Flower strategy inside FedDC: adapter, requirements, saved state."""
