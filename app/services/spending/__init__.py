"""The steps that requests which spend budget share: scope, price, quote, admission and acceptance."""
