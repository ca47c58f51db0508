"""What all commands share: an example in the help, refused former names, completion."""
