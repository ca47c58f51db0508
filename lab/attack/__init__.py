"""What a curious hospital learns from a hand-over, with and without noise.

The attacker is a member of the study: it knows the model that everybody started from, it receives
the next hand-over of another hospital, and it has records of its own.
"""
