"""Systems: the models that are trained, composed of shared parts."""
