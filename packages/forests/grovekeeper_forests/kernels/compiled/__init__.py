"""Contains the compiled loops. Importing a module of this package loads the compiler."""
