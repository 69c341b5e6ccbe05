"""Training: the plan and quote of a forest, the job that grows it, and the model that it becomes."""
