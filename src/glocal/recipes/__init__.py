"""The built-in recipes, one TOML file each; `glocal recipes` lists them."""
