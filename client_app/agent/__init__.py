"""The trusted process: API, permissions, life cycle."""
