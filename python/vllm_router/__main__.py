"""The command `vllm-router`, and `python -m vllm_router`."""

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """As `vllm_router.launch_router.main()`, but `probe`, which containers run all the time, loads little."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["probe"]:
        from vllm_router import probe

        try:
            return probe.main(arguments[1:])
        except KeyboardInterrupt:
            return 130
    from vllm_router.launch_router import main as launch

    return launch(arguments)


if __name__ == "__main__":
    sys.exit(main())
