"""Experiments: what decides a result, the one way to run one, and where a result comes from."""
