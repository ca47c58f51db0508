"""What a hospital keeps of a closed experiment: the model, and how good it is here."""
