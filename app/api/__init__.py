"""HTTP API: routes, authentication, problems. No rule of the product is in this package."""
