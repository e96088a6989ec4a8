"""What all methods share: the training loop, losses, memory, selection, saturation."""
