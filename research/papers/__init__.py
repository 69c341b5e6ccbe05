"""Repeats the tables of the papers; ``forests`` holds the forests without privacy that
stand beside private ones.
"""
