"""Paths, layers of parallel modules, backbones, and folding into a plain network."""
