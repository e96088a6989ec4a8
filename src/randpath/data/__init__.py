"""Pictures and vectors: reading, checking, augmenting, and cutting into tasks."""
