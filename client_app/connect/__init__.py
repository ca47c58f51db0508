"""The hospital's connection to the coordinator: SuperNode, courier pool, forwarder."""
