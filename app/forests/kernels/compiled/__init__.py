"""The compiled loops. Importing a module of this package loads the compiler."""
