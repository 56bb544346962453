"""Storage: the model directory, written atomically and read without executing anything."""
