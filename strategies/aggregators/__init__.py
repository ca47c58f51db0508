"""This project's own aggregators: Radon point and geometric median."""
