"""A sealed experiment under way: members, set-up, answers, journal, models."""
