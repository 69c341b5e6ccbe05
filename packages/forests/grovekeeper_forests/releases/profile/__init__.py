"""A profile: private bins, class counts and a size, which later jobs reuse."""
