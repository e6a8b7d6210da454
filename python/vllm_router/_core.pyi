"""C++ core of vllm-router; use the names in `vllm_router` instead."""

__version__: str
