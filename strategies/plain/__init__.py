"""FedDC for any Flower ClientApp: what the strategy's hooks do without a sealed study."""
