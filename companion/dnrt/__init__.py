"""Dynamic neural response tuning: RAA, a threshold that depends on the whole response (Qiu et al. 2024)."""
