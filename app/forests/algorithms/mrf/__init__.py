"""``mrf``: the multinomial random forest."""
