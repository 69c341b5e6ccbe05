"""Shows and cancels jobs, and defines what every kind of job builds on: interface, task
and public facts.
"""
