"""Text encoders and their tokenizers."""
