"""DNRT: dynamic neural response tuning with RAA, a threshold that depends on the whole response (Qiu et al. 2024)."""
