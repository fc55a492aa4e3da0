"""What executes, checks and copies the book's notebooks.

Run each from the project's root: ``python -m book._tools.gate``.
"""
