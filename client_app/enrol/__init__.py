"""Enrolment: create an identity, join a study."""
