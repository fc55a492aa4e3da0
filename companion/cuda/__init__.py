"""From a CUDA source to a torch operator: compile, cache, launch, choose."""
