"""The privacy ledger: all that this hospital has ever released about its patients."""
