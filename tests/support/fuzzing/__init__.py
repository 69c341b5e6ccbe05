"""Fuzzes every reader of untrusted bytes: at random in the default run, guided by
coverage in long runs.
"""
