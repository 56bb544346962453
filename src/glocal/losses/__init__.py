"""What training minimises, label chunk by label chunk."""
