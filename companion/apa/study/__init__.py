"""What the book says of it: its mathematics, experiments, exercises and figures."""
