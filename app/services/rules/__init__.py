"""Shows and changes the rules of datasets."""
