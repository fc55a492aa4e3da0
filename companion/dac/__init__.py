"""DAC: dendrite-activated connections, a bias for every pair of an input and an output."""
