"""Defines the contract of an algorithm: its protocol, parameters, public facts, plan
and released forest.
"""
