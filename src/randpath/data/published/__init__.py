"""One file per published dataset."""
