"""Implements ``bms-rf-plain``, a stacked multinomial forest with dropout, without
privacy.
"""
