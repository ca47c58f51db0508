"""The hospital: the courier (ClientApp), the agent and its commands."""
