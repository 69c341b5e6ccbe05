"""Makes the pictures of the documentation. The site publishes nothing of this folder."""
