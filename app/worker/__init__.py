"""Worker processes: claim a job, charge it, let a child grow it, register what came out."""
