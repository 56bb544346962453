"""Changes of trained models: labels added, removed, renamed or merged, and further training."""
