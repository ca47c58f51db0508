"""Checks: is this hospital ready to take part?"""
