"""Training losses, computed label chunk by label chunk."""
