"""One file a recipe: `paper = Experiment(...)`, as the paper is written, and `tuned = replace(paper, ...)`, the best we know."""
