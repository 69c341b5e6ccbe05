"""The readers of untrusted bytes as targets of fuzzing: ``tests/pure/test_fuzzing.py``
runs them, at random in the default run, guided by coverage in long runs.
"""
