"""Tests over HTTP and with real processes. The folder is a package, so its servers stop
after its last test.
"""
