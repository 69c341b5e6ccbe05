"""The command line of the client, ``grovekeeper``, which needs the extra ``cli``."""
