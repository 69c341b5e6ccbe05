"""Request and response types, one file per resource. No rule of the product is in this package."""
