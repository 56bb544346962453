"""Systems: published methods as compositions of shared parts."""
