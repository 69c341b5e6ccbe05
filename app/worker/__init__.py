"""Runs worker processes, which claim a job, charge it, run it in a child process and
register its output.
"""
