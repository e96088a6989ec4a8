"""A classifier that grows, for people with a folder of pictures: its directory, its versions, its estimator."""
