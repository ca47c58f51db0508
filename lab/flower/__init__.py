"""FedDC on Flower's simulation engine, and in this process."""
