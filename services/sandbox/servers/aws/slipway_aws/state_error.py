"""The state file's error, apart from the code that needs Moto to be configured."""


class StateError(Exception):
    """The state file cannot be used."""
