"""Search for the settings of a recipe on dev."""
