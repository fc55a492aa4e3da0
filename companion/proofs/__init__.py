"""A kernel proves itself on a GPU before it computes for anybody there."""
