"""Makes backups of an installation while it runs, and restores them into an empty one."""
