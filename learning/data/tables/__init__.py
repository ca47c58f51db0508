"""Tables of patients: what readers return, and how rows become features."""
