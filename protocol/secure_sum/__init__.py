"""Secure sums: members add their models under masks, and the coordinator learns only the sum.

The protocol of Bonawitz et al. 2017 in its form against a malicious server, in three trips:

1. mask       each member of a cohort C sends its vector under masks, and shares of the masks' seeds
2. survivors  each signs which members S have sent one; it signs one S per leg
3. reveal     given t signatures, each reveals shares: of self seeds of S, of pair seeds S × C∖S

Everything here is pure: it neither stores nor sends. `member` is the hospital's side, `unmasking`
the coordinator's. docs/secure-averaging.md describes the messages and has test vectors.
"""
