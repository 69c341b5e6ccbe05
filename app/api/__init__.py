"""HTTP: outside words to commands and back. No rule of the product lives here."""
