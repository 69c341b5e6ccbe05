"""Counts PRIVATE rows that are on other machines: messages, their sender and their receiver, without a network."""
