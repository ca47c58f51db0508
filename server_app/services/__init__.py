"""The coordinator's services: SuperLink, proxy and long polling."""
