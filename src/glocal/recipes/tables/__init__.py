"""Tables of variants for `glocal ablate`, one TOML file each."""
