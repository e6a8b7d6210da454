"""The version, without waiting for the extension; tests/unit/python compares it with pyproject.toml."""

__version__ = "0.2.0"
