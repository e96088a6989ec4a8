"""Every table and figure of the paper's section 4, with one command each."""
