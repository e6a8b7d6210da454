"""`python -m vllm_router` is the command `vllm-router`."""

import sys

from vllm_router.launch_router import main

if __name__ == "__main__":
    sys.exit(main())
