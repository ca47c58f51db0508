"""The built-in data sets, one module for each publisher or format."""
