"""``bms-rf``: a stacked multinomial forest with Bernoulli dropout."""
