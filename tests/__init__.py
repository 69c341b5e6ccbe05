"""The tests, by what they need: CONTRIBUTING.md describes the rooms."""
