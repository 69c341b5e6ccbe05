"""Request and response types: what clients rely on, one file per resource. No rule of the product lives here."""
