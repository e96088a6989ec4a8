"""One file per recipe: `paper`, an Experiment as the paper is written, and `tuned`, the best we know."""
