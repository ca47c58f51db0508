"""The hospital's connection: SuperNode, courier pool, forwarder."""
