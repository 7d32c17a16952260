"""emu: a wind tunnel for clusters that run large language models."""

__version__ = "0.1.0"
