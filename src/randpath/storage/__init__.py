"""What must last: transactional saves, the lock, and the bytes of every file format."""
