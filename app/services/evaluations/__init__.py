"""Private evaluations of models: request, release and display."""
