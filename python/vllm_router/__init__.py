"""One address in front of many LLM workers: routing by prefix cache and load, as a command and a library."""

try:
    from vllm_router._core import __version__
except ModuleNotFoundError as error:
    if error.name != "vllm_router._core":
        raise
    raise ImportError(
        "vllm_router's C++ extension is not built. Run `pip install .` in the source tree, or `make build` "
        "and set PYTHONPATH=build/release/python."
    ) from error

__all__ = ["__version__"]
